// AdamW: bias-corrected moments, decoupled weight decay.
#include "fsdp/optimizers/adamw.hpp"

#include <cmath>

namespace sprat::fsdp {

AdamWStep AdamWSchedule::next(float learning_rate, double gradient_scale) {
  beta1_power_ *= static_cast<double>(options_.beta1);
  beta2_power_ *= static_cast<double>(options_.beta2);
  const double rate = static_cast<double>(learning_rate);
  const double decay = static_cast<double>(options_.weight_decay);
  return {.gradient_scale = static_cast<float>(gradient_scale),
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .step_size = static_cast<float>(rate / (1 - beta1_power_)),
          .second_correction = static_cast<float>(1 / std::sqrt(1 - beta2_power_)),
          .epsilon = options_.epsilon,
          .kept = static_cast<float>(1 - rate * decay)};
}

void update(const AdamWStep& step, bool decay, const AdamWElements& elements) {
  const AdamWStep s = step;  // a local copy cannot alias the arrays, so the loop vectorises
  const float kept = decay ? s.kept : 1.0f;
  const float new_first = 1.0f - s.beta1;
  const float new_second = 1.0f - s.beta2;
  float* __restrict parameters = elements.parameters.data();
  float* __restrict first = elements.first_moments.data();
  float* __restrict second = elements.second_moments.data();
  const float* __restrict gradients = elements.gradients.data();
  const std::size_t count = elements.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * s.gradient_scale;
    const float m = s.beta1 * first[i] + new_first * gradient;
    const float v = s.beta2 * second[i] + new_second * (gradient * gradient);
    const float root = std::sqrt(v) * s.second_correction + s.epsilon;
    first[i] = m;
    second[i] = v;
    parameters[i] = parameters[i] * kept - s.step_size * (m / root);
  }
}

}  // namespace sprat::fsdp
