// How far ahead activations are loaded where the configuration leaves that to measured times.
#pragma once

#include <optional>
#include <string>

#include "sprat/activations.hpp"
#include "sprat/communicator.hpp"
#include "train/config/pipeline_config.hpp"

namespace sprat::train {

/// Activations leave, and more than one horizon may be chosen.
bool horizon_is_open(const ActivationConfig& config);
/// The configuration's horizon, or the largest that may be chosen: memory is planned for it.
int largest_horizon(const ActivationConfig& config);

/// Collective over the job. The smallest horizon that keeps the rank that stalls longest hardly
/// longer than any; steps and stalls are the longest of any rank. `mine` has the stalls of
/// horizons 1 to `limit`. Nothing if a rank has none: the limit, with which it did not stall,
/// stays.
std::optional<HorizonChoice> agree_on_horizon(Communicator& world,
                                              const std::optional<HorizonChoice>& mine, int limit);

/// A line for people: what was chosen after `step`, and why.
std::string horizon_text(const ActivationConfig& config, const std::optional<HorizonChoice>& choice,
                         int step);

}  // namespace sprat::train
