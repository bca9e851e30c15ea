// Each stage makes its units full for itself, then its first rank sends them to rank 0.
#include "train/whole_model.hpp"

#include <algorithm>
#include <utility>

#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

using Values = std::vector<Floats>;

/// Copies of this rank's units, by their number in the whole model, where `keep` is set; making a
/// unit full takes all ranks that share it. In the order of an evaluation, which may end early.
void copy_own(ModelPart& part, Parameters& own, bool keep, std::span<const int> numbers,
              std::vector<Values>& values) {
  const std::vector<UnitSpec>& units = part.units();
  std::vector<bool> seen(units.size());
  for (const int unit : part.mine().sharding.evaluation) {
    const auto at = static_cast<std::size_t>(unit);
    own.acquire(unit);
    Values& copies = values[static_cast<std::size_t>(numbers[at])];
    for (std::size_t index = 0; keep && !seen[at] && index < units[at].parameters.size(); ++index) {
      const auto from = own.values(unit, static_cast<int>(index));
      copies.emplace_back(from.begin(), from.end());
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

WholeModel::WholeModel(ModelPart& part, Parameters& own, const TrainConfig& config) {
  const std::vector<UnitSpec> units = gpt_units(config.model, config.sharding.seed);
  values_.resize(units.size());
  const ParallelCoordinate& mine = part.mine().coordinate;
  const bool collects = mine.replica == 0 && mine.shard == 0;
  copy_own(part, own, collects, unit_numbers(part, config.model, mine.pipeline), values_);
  // Messages of a pair of ranks arrive in order, and both go through the same list.
  for (int from = 1; collects && from < part.pipeline().size(); ++from) {
    for (const int unit : unit_numbers(part, config.model, from)) {
      Values& values = values_[static_cast<std::size_t>(unit)];
      for (std::size_t index = 0; index < units[static_cast<std::size_t>(unit)].parameters.size();
           ++index) {
        if (mine.pipeline == from) {
          part.pipeline().send(elements(std::as_const(values[index])), 0).wait();
        } else if (mine.pipeline == 0) {
          values.emplace_back(
              element_count(units[static_cast<std::size_t>(unit)].parameters[index]));
          part.pipeline().recv(elements(values.back()), from).wait();
        }
      }
    }
  }
}

}  // namespace sprat::train
