// The table of transports: the ways in which messages travel between ranks, a folder each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transports/transport.hpp"
#include "sprat/config.hpp"

namespace sprat::comm {

/// What a rank's transport is opened for.
struct TransportOptions {
  const Config& config;
  int rank = 0;
  int size = 1;
  /// Whom it shall reach, this rank among them, in the order that all of them use.
  std::vector<int> ranks;
  /// TransportKind::control_bytes() of this rank's control segment: aligned to 64, zeroed before
  /// any peer maps them.
  std::span<std::byte> mine = {};
  /// The same piece of each of `ranks`, in that order, as mapped here.
  std::vector<const std::byte*> theirs = {};
  /// Wakes one of `ranks`, if its scope is the host: progress() has moved on what it may wait for.
  std::function<void(int peer)> ring = {};
};

/// An entry of the table, one folder of comm/transports/ each.
struct TransportKind {
  enum class Scope : std::uint8_t {
    host,    ///< Ranks that share memory.
    network  ///< Ranks of all hosts.
  };
  const char* name;
  const char* summary;  ///< One sentence: what it is and where it runs.
  Scope scope;
  /// Whether this machine may have it: the first of its scope that does is opened, and has to say
  /// what is missing if it cannot be. All ranks of a job must find the same.
  bool (*available)(const Config& config);
  /// Of each rank's control segment, if its scope is the host; of so many ranks.
  std::size_t (*control_bytes)(std::size_t ranks);
  std::unique_ptr<MessageTransport> (*open)(const TransportOptions& options);
  /// What it would go through here, for people. Throws what open() does for want of it.
  std::string (*describe)(const Config& config);
};
/// Best first.
std::span<const TransportKind* const> all_transport_kinds() noexcept;
/// Throws Error{unavailable} that lists what there is.
const TransportKind& choose_transport(TransportKind::Scope scope, const Config& config);

}  // namespace sprat::comm
