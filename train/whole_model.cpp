// Each rank of a copy of the model makes its units full one after another, and sends its parts of
// each to rank 0 while it is.
#include "train/whole_model.hpp"

#include <algorithm>
#include <utility>

#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

using Values = std::vector<Floats>;

/// Calls use(unit, values) for every tensor of this rank, units in rising order; making a unit full
/// takes all ranks that share it. In the order of an evaluation, which may end early.
template <class Use>
void visit_own(ModelPart& part, Parameters& own, const Use& use) {
  const std::vector<UnitSpec>& units = part.units();
  std::vector<bool> seen(units.size());
  for (const int unit : part.mine().sharding.evaluation) {
    const auto at = static_cast<std::size_t>(unit);
    const int tensors = seen[at] ? 0 : static_cast<int>(held_tensors(units[at]).size());
    own.acquire(unit);
    for (int index = 0; index < tensors; ++index) {
      use(at, index, own.values(unit, index));
    }
    own.release(unit);
    seen[at] = true;
    if (std::ranges::count(seen, false) == 0) {
      return;
    }
  }
}

/// A rank's units, with their numbers in the whole model.
struct NumberedUnits {
  std::vector<UnitSpec> units;
  std::vector<std::size_t> numbers;
};
NumberedUnits units_at(const ModelPart& part, const TrainConfig& config,
                       const ParallelCoordinate& place) {
  const GptPlacement placement = placement_of(config, part.plan(), place);
  NumberedUnits result{.units = gpt_units(config.model, config.sharding.seed, placement),
                       .numbers = {}};
  const std::vector<int> own = own_units(config.model, placement);
  for (std::size_t unit = 0; unit < own.size(); ++unit) {
    if (own[unit] >= 0) {
      result.numbers.push_back(unit);
    }
  }
  return result;
}

/// Copies what a rank holds of a tensor, part after part, to where it is in the whole one.
void place_parts(const UnitSpec& unit, int tensor, std::span<const float> held, Values& whole) {
  const HeldTensor parts = held_tensors(unit)[static_cast<std::size_t>(tensor)];
  std::size_t at = 0;
  for (int index = parts.first; index < parts.first + parts.parts; ++index) {
    const ParameterSpec& parameter = unit.parameters[static_cast<std::size_t>(index)];
    const Box all = whole_box(parameter.shape);
    Floats& values = whole[static_cast<std::size_t>(tensor)];
    values.resize(static_cast<std::size_t>(element_count(all)));
    for_each_run(all, held_box(parameter), [&](BoxRun run) {
      const auto count = static_cast<std::size_t>(run.count);
      std::copy_n(held.data() + at, count, values.data() + run.offset);
      at += count;
    });
  }
}

}  // namespace

bool has_whole_model(const ModelPart& part) {
  const ShardedModel& model = part.model();
  const bool gathers =
      model.hybrid_shard_degree() > 1 && model.strategy().parameters[1] == Placement::flat;
  return part.plan().schedule.stages() == 1 && part.plan().layout.size(Axes::model) == 1 &&
         !gathers;
}

std::size_t whole_model_bytes(const GptShape& shape) {
  std::size_t bytes = 0, most = 0;
  for (const UnitSpec& unit : gpt_units(shape, 0)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const std::size_t one = element_count(parameter) * sizeof(float);
      bytes += one;
      most = std::max(most, one);
    }
  }
  // One more is on its way from another rank.
  return bytes + most;
}

WholeModel::WholeModel(ModelPart& part, Parameters& own, const TrainConfig& config) {
  const ParallelCoordinate& mine = part.mine().coordinate;
  const bool collects = mine.replica == 0 && mine.shard == 0;
  const bool is_first = collects && part.copy().rank() == 0;
  const NumberedUnits here = units_at(part, config, mine);
  if (is_first) {
    for (const UnitSpec& unit : gpt_units(config.model, config.sharding.seed)) {
      values_.emplace_back(unit.parameters.size());
    }
  }
  visit_own(part, own, [&](std::size_t unit, int tensor, std::span<const float> values) {
    if (is_first) {
      place_parts(here.units[unit], tensor, values, values_[here.numbers[unit]]);
    } else if (collects) {
      part.copy().send(elements(values), 0).wait();
    }
  });
  // Messages of a pair of ranks arrive in order, and both go through the same list.
  const std::vector<int> ranks =
      part.plan().layout.group(Axes::model, part.plan().layout.rank(mine));
  for (int from = 1; is_first && from < part.copy().size(); ++from) {
    const ParallelCoordinate place =
        part.plan().layout.coordinate(ranks[static_cast<std::size_t>(from)]);
    const NumberedUnits there = units_at(part, config, place);
    for (std::size_t unit = 0; unit < there.units.size(); ++unit) {
      const std::vector<HeldTensor> tensors = held_tensors(there.units[unit]);
      for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        Floats held(tensors[tensor].count);
        part.copy().recv(elements(held), from).wait();
        place_parts(there.units[unit], static_cast<int>(tensor), held,
                    values_[there.numbers[unit]]);
      }
    }
  }
}

}  // namespace sprat::train
