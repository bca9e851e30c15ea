// Parameters in this rank's own memory.
#include "train/parameters.hpp"

#include <algorithm>

namespace sprat::train {

WholeParameters::WholeParameters(const std::vector<UnitSpec>& units) {
  for (const UnitSpec& unit : units) {
    auto& values = values_.emplace_back();
    auto& gradients = gradients_.emplace_back();
    for (const ParameterSpec& parameter : unit.parameters) {
      std::size_t count = 1;
      for (const std::int64_t size : parameter.shape) {
        count *= static_cast<std::size_t>(size);
      }
      Floats& initial = values.emplace_back(count);
      for (std::size_t index = 0; index < count; ++index) {
        initial[index] = parameter.initial(index);
      }
      gradients.emplace_back(count, 0.0f);
    }
  }
}

void WholeParameters::copy_values(Parameters& other, const std::vector<int>& order) {
  for (const int unit : order) {
    other.acquire(unit);
    for (std::size_t index = 0; index < values_[unit].size(); ++index) {
      std::ranges::copy(other.values(unit, static_cast<int>(index)), values_[unit][index].begin());
    }
    other.release(unit);
  }
}

}  // namespace sprat::train
