// Each rank plays its own program with its own times. A horizon changes no bit, but ranks that wait
// for each other are as slow as the slowest, so what counts of a horizon is its longest stall.
#include "train/loading_horizon.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace sprat::train {
namespace {

const char* name(HorizonUnit unit) { return unit == HorizonUnit::tasks ? "tasks" : "tensors"; }

}  // namespace

bool horizon_is_open(const ActivationConfig& config) {
  return config.offload && config.horizon == 0 && config.horizon_limit > 1;
}

int largest_horizon(const ActivationConfig& config) {
  return config.horizon > 0 ? config.horizon : config.horizon_limit;
}

std::optional<HorizonChoice> agree_on_horizon(Communicator& world,
                                              const std::optional<HorizonChoice>& mine, int limit) {
  constexpr std::size_t first_stall = 2;
  std::vector<double> values = {mine ? 0.0 : 1.0, mine ? mine->steps : 0.0};
  values.resize(first_stall + static_cast<std::size_t>(limit), 0.0);
  if (mine) {
    std::ranges::copy(mine->stalls, values.begin() + first_stall);
  }
  // Of measured times, which differ from run to run.
  world
      .all_reduce(elements(std::span(values)), ReduceOp::max,
                  {.timeout = {}, .blocking = true, .digested = false})
      .wait();
  if (values[0] > 0) {
    return std::nullopt;
  }
  return chosen_of({values.begin() + first_stall, values.end()}, values[1]);
}

std::string horizon_text(const ActivationConfig& config, const std::optional<HorizonChoice>& choice,
                         int step) {
  if (!choice) {
    return fmt::format(
        "activations come back with a horizon of {} {}: on a rank none had left before it was "
        "wanted, so nothing says that less would do",
        config.horizon_limit, name(config.unit));
  }
  std::vector<std::string> stalls;
  for (const double stall : choice->stalls) {
    stalls.push_back(fmt::format("{:.1f}", 1e3 * stall));
  }
  return fmt::format(
      "activations come back with a horizon of {} {}: by the times of step {}, horizons 1 to {} "
      "stall {} ms beside {:.1f} ms of computing",
      choice->horizon, name(config.unit), step, stalls.size(), fmt::join(stalls, ", "),
      1e3 * choice->steps);
}

}  // namespace sprat::train
