// A picture of a simulated schedule: what each rank computes, sends and moves when.
#pragma once

#include <string>

#include "mp/simulate.hpp"

namespace sprat::cli {

/// An SVG of one lane for each rank, of the first 64 where there are more. A span of computation
/// has the colour of its action and of its stage on the rank, and its micro-batch's number; below
/// it stand messages and collectives, then stores and loads.
std::string to_svg(const mp::Schedule& schedule, const mp::Timeline& made);

}  // namespace sprat::cli
