// Widening what is gathered narrow, and parameters in this rank's own memory.
#include "train/model/parameters.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace sprat::train {
namespace {

/// By unit: the unit that has its values, itself unless it is tied to another.
std::vector<int> value_units(const std::vector<UnitSpec>& units) {
  std::vector<int> result;
  for (const UnitSpec& unit : units) {
    result.push_back(unit.tied_to < 0 ? static_cast<int>(result.size()) : unit.tied_to);
  }
  return result;
}

}  // namespace

std::size_t element_count(const ParameterSpec& parameter) {
  std::size_t count = 1;
  for (const std::int64_t extent : parameter.shape) {
    count *= static_cast<std::size_t>(extent);
  }
  return count;
}

ShardedParameters::ShardedParameters(ShardedModel& model, const std::vector<UnitSpec>& units,
                                     DType type)
    : model_(model), narrow_(type != DType::f32) {
  // Buffers are lent by their size, so of each size there are as many as one unit ever needs.
  std::map<std::size_t, std::size_t> most;
  for (const UnitSpec& unit : units) {
    wide_.push_back({.parameters = static_cast<int>(unit.parameters.size()), .values = {}});
    std::map<std::size_t, std::size_t> counts;
    for (const ParameterSpec& parameter : unit.parameters) {
      const std::size_t size = element_count(parameter);
      most[size] = std::max(most[size], ++counts[size]);
    }
  }
  for (const auto& [size, count] : most) {
    bytes_planned_ += size * count * sizeof(float);
  }
}

void ShardedParameters::acquire(int unit) {
  model_.acquire(unit);
  if (!narrow_) {
    return;
  }
  ++wide_[unit].acquired;
  if (wide_[unit].values.empty() && model_.has_values(unit)) {
    widen_values(unit);
  }
}

void ShardedParameters::release(int unit) {
  if (narrow_ && --wide_[unit].acquired == 0) {
    // Layers have equal shapes: the next one takes these buffers over instead of allocating.
    std::ranges::move(wide_[unit].values, std::back_inserter(spare_));
    wide_[unit].values.clear();
  }
  model_.release(unit);
}

void ShardedParameters::widen_values(int unit) {
  Wide& wide = wide_[unit];
  for (int index = 0; index < wide.parameters; ++index) {
    const ConstElements narrow = model_.parameter_elements(unit, index);
    const auto fit = std::ranges::find(spare_, narrow.count, &Floats::size);
    Floats floats = fit == spare_.end() ? Floats(narrow.count) : std::move(*fit);
    if (fit != spare_.end()) {
      spare_.erase(fit);
    }
    widen(narrow, floats);
    wide.values.push_back(std::move(floats));
  }
}

WholeParameters::WholeParameters(const std::vector<UnitSpec>& units)
    : value_units_(value_units(units)) {
  for (const UnitSpec& unit : units) {
    auto& values = values_.emplace_back();
    auto& gradients = gradients_.emplace_back();
    for (const ParameterSpec& parameter : unit.parameters) {
      const std::size_t count = element_count(parameter);
      gradients.emplace_back(count, 0.0f);
      if (unit.tied_to >= 0) {
        continue;
      }
      Floats& initial = values.emplace_back(count);
      for (std::size_t index = 0; index < count; ++index) {
        initial[index] = parameter.initial(index);
      }
    }
  }
}

WholeParameters::WholeParameters(Parameters& other, const std::vector<UnitSpec>& units,
                                 const std::vector<int>& order)
    : value_units_(value_units(units)), values_(units.size()) {
  // Acquiring is collective, so a unit that the order visits twice is acquired twice, and copied
  // once.
  for (const int unit : order) {
    other.acquire(unit);
    auto& values = values_[value_units_[unit]];
    const bool seen = !values.empty();
    for (std::size_t index = 0; !seen && index < units[unit].parameters.size(); ++index) {
      const auto from = other.values(unit, static_cast<int>(index));
      values.emplace_back(from.begin(), from.end());
    }
    other.release(unit);
  }
}

}  // namespace sprat::train
