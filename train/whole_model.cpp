// Each stage makes its units full one after another, and its first rank sends each to rank 0 while
// it is.
#include "train/whole_model.hpp"

#include <algorithm>
#include <utility>

#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

using Values = std::vector<Floats>;

/// Calls use(unit, values) for every parameter of this rank, units in rising order; making a
/// unit full takes all ranks that share it. In the order of an evaluation, which may end early.
template <class Use>
void visit_own(ModelPart& part, Parameters& own, const Use& use) {
  const std::vector<UnitSpec>& units = part.units();
  std::vector<bool> seen(units.size());
  for (const int unit : part.mine().sharding.evaluation) {
    const auto at = static_cast<std::size_t>(unit);
    own.acquire(unit);
    for (std::size_t index = 0; !seen[at] && index < units[at].parameters.size(); ++index) {
      use(at, own.values(unit, static_cast<int>(index)));
    }
    own.release(unit);
    seen[at] = true;
    if (std::ranges::count(seen, false) == 0) {
      return;
    }
  }
}

/// Numbers in the whole model of the units that one rank of a pipeline has.
std::vector<int> unit_numbers(const ModelPart& part, const GptShape& shape, int pipeline_rank) {
  const std::vector<int> own = own_units(shape, placement_of(part.plan(), pipeline_rank));
  std::vector<int> numbers;
  for (int unit = 0; unit < static_cast<int>(own.size()); ++unit) {
    if (own[static_cast<std::size_t>(unit)] >= 0) {
      numbers.push_back(unit);
    }
  }
  return numbers;
}

}  // namespace

bool has_whole_model(const ModelPart& part) {
  const ShardedModel& model = part.model();
  const bool gathers =
      model.hybrid_shard_degree() > 1 && model.strategy().parameters[1] == Placement::flat;
  return part.plan().schedule.stages() == 1 && !gathers;
}

std::size_t whole_model_bytes(const GptShape& shape) {
  std::size_t bytes = 0;
  for (const UnitSpec& unit : gpt_units(shape, 0)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      bytes += element_count(parameter) * sizeof(float);
    }
  }
  return bytes;
}

WholeModel::WholeModel(ModelPart& part, Parameters& own, const TrainConfig& config) {
  const std::vector<UnitSpec> units = gpt_units(config.model, config.sharding.seed);
  const ParallelCoordinate& mine = part.mine().coordinate;
  const bool collects = mine.replica == 0 && mine.shard == 0;
  if (collects && mine.pipeline == 0) {
    values_.resize(units.size());
  }
  const std::vector<int> numbers = unit_numbers(part, config.model, mine.pipeline);
  visit_own(part, own, [&](std::size_t unit, std::span<const float> values) {
    if (!values_.empty()) {
      Values& copies = values_[static_cast<std::size_t>(numbers[unit])];
      copies.emplace_back(values.begin(), values.end());
    } else if (collects) {
      part.pipeline().send(elements(values), 0).wait();
    }
  });
  // Messages of a pair of ranks arrive in order, and both go through the same list.
  for (int from = 1; !values_.empty() && from < part.pipeline().size(); ++from) {
    for (const int number : unit_numbers(part, config.model, from)) {
      const auto unit = static_cast<std::size_t>(number);
      for (const ParameterSpec& parameter : units[unit].parameters) {
        values_[unit].emplace_back(element_count(parameter));
        part.pipeline().recv(elements(values_[unit].back()), from).wait();
      }
    }
  }
}

}  // namespace sprat::train
