// A picture of a simulation: what each rank's core and rails did when.
#pragma once

#include <string>
#include <vector>

#include "collectives/simulate/simulator.hpp"

namespace sprat::cli {

struct Timeline {
  std::string title, subtitle;
  std::vector<int> host_of;  ///< By rank.
  double seconds = 0;
  std::vector<collectives::Span> spans;
};

/// An SVG of one row for each rank, of the first 64 where there are more. A row has three lanes:
/// the core's work, what is sent, what is received.
std::string to_svg(const Timeline& timeline);
/// A Chrome trace, in the form of measured ones: copies and reductions are what a rank computes.
std::string to_trace(const Timeline& timeline);

}  // namespace sprat::cli
