// Machines on paper: what the simulator has to know of a cluster of equal hosts.
#pragma once

#include <span>
#include <string_view>

#include "comm/host/topology.hpp"

namespace sprat::collectives {

/// One host of many alike, and the wires between them. A GBps is 1e9 bytes a second in one
/// direction; rates of a rank are those it has while all ranks of its host use theirs.
struct Machine {
  std::string_view name;     ///< In the table; of what was read from XML, whose rates it has.
  std::string_view summary;  ///< What it is made of.
  int ranks = 1;             ///< Usual ranks of a host: its GPUs, else its cores.
  int rails = 1;             ///< NICs of a host.
  double rail_GBps = 1;      ///< One rail.
  double wire_us = 1;        ///< From a message's first byte leaving to its first byte arriving.
  double message_us = 0;     ///< What a message costs its rails beside its bytes.
  double pull_GBps = 1;      ///< A rank reading peers' memory.
  double link_GBps = 1;      ///< A rank's memory being read by all its peers.
  double copy_GBps = 1;      ///< A rank copying in its own memory.
  double add_GBps = 1;       ///< A rank adding a source to a sum; bytes of the source.
  double signal_us = 0;      ///< Until the ranks of a host see another's signal.
};

/// Every machine known by name.
std::span<const Machine> all_machines();
/// Throws Error{invalid_argument} that lists the names.
Machine machine_named(std::string_view name);
/// GPUs, else cores, and NICs are counted; rates are those of the machine in the table that has the
/// same GPUs, and as many of them and of NICs if there is one; else of c5n.
Machine machine_of(const comm::Topology& topology);
/// Changes fields: "rails=2,wire_us=20". Throws Error{invalid_argument} that shows the word it does
/// not understand.
void change(Machine& machine, std::string_view changes);

}  // namespace sprat::collectives
