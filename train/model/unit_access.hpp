// One unit's values and gradients, as a layer takes them.
#pragma once

#include <span>

#include "train/model/parameters.hpp"

namespace sprat::train {

class UnitValues {
 public:
  UnitValues(const Parameters& parameters, int unit) : parameters_(parameters), unit_(unit) {}
  std::span<const float> operator[](int index) const { return parameters_.values(unit_, index); }

 private:
  const Parameters& parameters_;
  int unit_;
};

/// Of one micro-batch.
class UnitGradients {
 public:
  UnitGradients(Parameters& parameters, int unit, int microbatch)
      : parameters_(parameters), unit_(unit), microbatch_(microbatch) {}
  std::span<float> operator[](int index) const {
    return parameters_.gradients(unit_, index, microbatch_);
  }

 private:
  Parameters& parameters_;
  int unit_, microbatch_;
};

}  // namespace sprat::train
