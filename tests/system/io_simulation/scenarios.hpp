// What happens to storage while it is read: a table. Sizes, times and noise come from a seed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tests/system/io_simulation/run.hpp"

namespace sprat::io_simulation {

struct Scenario {
  std::string_view name;
  /// Makes it of an undisturbed setup.
  void (*disturb)(RunSetup& setup, Random& random);
  /// Whether least_seconds() knows all that has to be waited for.
  bool bounded = true;
};

std::span<const Scenario> scenarios();

/// The same for the same scenario and seed, on all machines.
RunSetup draw(const Scenario& scenario, std::uint64_t seed);

/// When the run, undisturbed, is about half over.
double middle_of(const RunSetup& setup);

}  // namespace sprat::io_simulation
