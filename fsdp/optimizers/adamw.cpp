// AdamW: bias-corrected moments, decoupled weight decay.
#include <array>
#include <cmath>
#include <limits>

#include "collectives/kernels/reduce_targets.hpp"
#include "fsdp/optimizer.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fsdp/optimizers/adamw.cpp"
#include <hwy/foreach_target.h>  // Compiles what follows once per instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sprat::fsdp {
namespace HWY_NAMESPACE {

/// The numbers of one step, the same for every element: what the gradient is multiplied by, betas,
/// learning rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t), epsilon, and what decay leaves.
struct Numbers {
  float gradient_scale, beta1, beta2, step_size, second_correction, epsilon, kept;
};

/// One update (Loshchilov and Hutter, arXiv:1711.05101, with decay applied first as torch does). A
/// plain loop, of which compilers make vectors: divisions and roots limit narrow ones.
void update_adamw(const float* numbers, const OptimizerElements& elements) {
  // A local copy cannot alias the arrays, so the loop vectorises.
  const Numbers s = {numbers[0], numbers[1], numbers[2], numbers[3],
                     numbers[4], numbers[5], numbers[6]};
  const float new_first = 1.0f - s.beta1;
  const float new_second = 1.0f - s.beta2;
  float* __restrict parameters = elements.parameters.data();
  float* __restrict first = elements.states[0].data();
  float* __restrict second = elements.states[1].data();
  const float* __restrict gradients = elements.gradients.data();
  const std::size_t count = elements.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * s.gradient_scale;
    const float m = s.beta1 * first[i] + new_first * gradient;
    const float v = s.beta2 * second[i] + new_second * (gradient * gradient);
    const float root = std::sqrt(v) * s.second_correction + s.epsilon;
    first[i] = m;
    second[i] = v;
    parameters[i] = parameters[i] * s.kept - s.step_size * (m / root);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::fsdp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace sprat::fsdp {

namespace {

HWY_EXPORT(update_adamw);

constexpr double unbounded = std::numeric_limits<double>::infinity();
constexpr std::array states = {"exp_avg", "exp_avg_sq"};
constexpr std::array hyperparameters = {
    Hyperparameter{.name = "beta1", .standard = 0.9, .least = 0, .below = 1},
    Hyperparameter{.name = "beta2", .standard = 0.95, .least = 0, .below = 1},
    Hyperparameter{.name = "epsilon", .standard = 1e-8, .least = 1e-30, .below = unbounded},
    Hyperparameter{.name = "weight_decay", .standard = 0.1, .least = 0, .below = unbounded},
};

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const std::map<std::string, double>& values)
      : beta1_(static_cast<float>(values.at("beta1"))),
        beta2_(static_cast<float>(values.at("beta2"))),
        epsilon_(static_cast<float>(values.at("epsilon"))),
        weight_decay_(static_cast<float>(values.at("weight_decay"))) {}

  void begin_step(std::int64_t step, float learning_rate, double gradient_scale) override {
    advance(step);
    const double rate = double{learning_rate};
    numbers_ = {static_cast<float>(gradient_scale),
                beta1_,
                beta2_,
                static_cast<float>(rate / (1 - beta1_power_)),
                static_cast<float>(1 / std::sqrt(1 - beta2_power_)),
                epsilon_,
                static_cast<float>(1 - rate * double{weight_decay_})};
  }
  void update(bool decay, const OptimizerElements& elements) const override {
    std::array<float, 7> numbers = numbers_;
    numbers.back() = decay ? numbers.back() : 1.0f;
    HWY_DYNAMIC_DISPATCH(update_adamw)(numbers.data(), elements);
  }

 private:
  /// Powers are products from step 1 on, so no library's pow() decides bits; a jump remakes them.
  void advance(std::int64_t step) {
    if (step < step_) {
      step_ = 0;
      beta1_power_ = beta2_power_ = 1;
    }
    for (; step_ < step; ++step_) {
      beta1_power_ *= double{beta1_};
      beta2_power_ *= double{beta2_};
    }
  }

  float beta1_, beta2_, epsilon_, weight_decay_;
  std::int64_t step_ = 0;  // whose powers these are
  double beta1_power_ = 1, beta2_power_ = 1;
  std::array<float, 7> numbers_{};  // in the order of Numbers
};

}  // namespace

extern const OptimizerKind adamw_optimizer;
const OptimizerKind adamw_optimizer = {
    .name = "adamw",
    .states = states,
    .hyperparameters = hyperparameters,
    .make = [](const std::map<std::string, double>& values) -> std::unique_ptr<Optimizer> {
      return std::make_unique<AdamW>(values);
    }};

}  // namespace sprat::fsdp
#endif
