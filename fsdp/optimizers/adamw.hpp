// AdamW on flat f32 arrays, element by element.
#pragma once

#include <cstddef>
#include <span>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// The numbers of one step, the same for every element of a decay range.
struct AdamWStep {
  float gradient_scale = 1;  ///< Clipping and the mean over ranks.
  float beta1 = 0, beta2 = 0;
  float step_size = 0;          ///< learning rate / (1 - beta1^t)
  float second_correction = 0;  ///< 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
  float kept = 1;  ///< 1 - learning rate * weight decay: what decay leaves of a parameter.
};

/// Counts steps. Bias corrections are products in f64, so no library's pow() decides bits.
class AdamWSchedule {
 public:
  explicit AdamWSchedule(const AdamWOptions& options) : options_(options) {}
  AdamWStep next(float learning_rate, double gradient_scale);

 private:
  AdamWOptions options_;
  double beta1_power_ = 1, beta2_power_ = 1;
};

/// State of the same elements, in four arrays of equal length.
struct AdamWElements {
  std::span<float> parameters, first_moments, second_moments;
  std::span<const float> gradients;
};

/// One update (Loshchilov and Hutter, arXiv:1711.05101, with decay applied first as torch does).
/// Only IEEE basic operations in a fixed order, so the bits do not depend on vector width or on
/// shards.
void update(const AdamWStep& step, bool decay, const AdamWElements& elements);

}  // namespace sprat::fsdp
