// Widening what is gathered narrow, and parameters in this rank's own memory.
#include "train/model/parameters.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
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

/// Of all parts, one after another.
Floats initial_values(const UnitSpec& unit, const HeldTensor& tensor) {
  Floats values;
  values.reserve(tensor.count);
  for (int index = tensor.first; index < tensor.first + tensor.parts; ++index) {
    const ParameterSpec& parameter = unit.parameters[static_cast<std::size_t>(index)];
    for_each_run(whole_box(parameter.shape), held_box(parameter), [&](BoxRun run) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        values.push_back(parameter.initial(static_cast<std::uint64_t>(run.offset + i)));
      }
    });
  }
  return values;
}

}  // namespace

std::size_t element_count(const ParameterSpec& parameter) {
  return static_cast<std::size_t>(element_count(held_box(parameter)));
}

std::vector<HeldTensor> held_tensors(const UnitSpec& unit) {
  std::vector<HeldTensor> tensors;
  const std::string* before = nullptr;
  for (int index = 0; std::cmp_less(index, unit.parameters.size()); ++index) {
    const ParameterSpec& parameter = unit.parameters[static_cast<std::size_t>(index)];
    if (before == nullptr || *before != parameter.name) {
      tensors.push_back({.first = index});
    }
    ++tensors.back().parts;
    tensors.back().count += element_count(parameter);
    before = &parameter.name;
  }
  return tensors;
}

ShardedParameters::ShardedParameters(ShardedModel& model, const std::vector<UnitSpec>& units,
                                     DType type)
    : model_(model), narrow_(type != DType::f32), wide_(units.size()) {
  // Buffers are lent by their size, so of each size there are as many as one unit ever needs.
  std::map<std::size_t, std::size_t> most;
  for (const UnitSpec& unit : units) {
    tensors_.push_back(held_tensors(unit));
    std::map<std::size_t, std::size_t> counts;
    for (const HeldTensor& tensor : tensors_.back()) {
      most[tensor.count] = std::max(most[tensor.count], ++counts[tensor.count]);
    }
  }
  for (const auto& [size, count] : most) {
    bytes_planned_ += size * count * sizeof(float);
  }
}

// Parts of a tensor lie one after another without a gap, values and gradients alike.
std::span<const float> ShardedParameters::values(int unit, int index) const {
  if (narrow_) {
    return wide_[unit].values[index];
  }
  const HeldTensor& tensor = tensors_[unit][index];
  return {model_.parameter(unit, tensor.first).data(), tensor.count};
}

std::span<float> ShardedParameters::gradients(int unit, int index, int microbatch) {
  const HeldTensor& tensor = tensors_[unit][index];
  const std::span<float> first = model_.gradient(unit, tensor.first, microbatch);
  // A gradient becomes zero when it is first asked for, so each part is.
  for (int part = 1; part < tensor.parts; ++part) {
    model_.gradient(unit, tensor.first + part, microbatch);
  }
  return {first.data(), tensor.count};
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
  for (const HeldTensor& tensor : tensors_[unit]) {
    const auto fit = std::ranges::find(spare_, tensor.count, &Floats::size);
    Floats floats = fit == spare_.end() ? Floats(tensor.count) : std::move(*fit);
    if (fit != spare_.end()) {
      spare_.erase(fit);
    }
    ConstElements narrow = model_.parameter_elements(unit, tensor.first);
    narrow.count = tensor.count;
    widen(narrow, floats);
    wide_[unit].values.push_back(std::move(floats));
  }
}

WholeParameters::WholeParameters(const std::vector<UnitSpec>& units)
    : value_units_(value_units(units)) {
  for (const UnitSpec& unit : units) {
    auto& values = values_.emplace_back();
    auto& gradients = gradients_.emplace_back();
    for (const HeldTensor& tensor : held_tensors(unit)) {
      gradients.emplace_back(tensor.count, 0.0f);
      if (unit.tied_to < 0) {
        values.push_back(initial_values(unit, tensor));
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
    const std::size_t tensors = seen ? 0 : held_tensors(units[unit]).size();
    for (std::size_t index = 0; index < tensors; ++index) {
      const auto from = other.values(unit, static_cast<int>(index));
      values.emplace_back(from.begin(), from.end());
    }
    other.release(unit);
  }
}

}  // namespace sprat::train
