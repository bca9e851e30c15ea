// Lion, evolved sign momentum (Chen et al., arXiv:2302.06675): steps of one size, one state.
//
// Its rate is about a tenth of AdamW's, its decay about ten times AdamW's (section 5 there).
#include <array>
#include <limits>

#include "fsdp/optimizer.hpp"

namespace sprat::fsdp {
namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();
constexpr std::array states = {"exp_avg"};
constexpr std::array hyperparameters = {
    Hyperparameter{.name = "beta1", .standard = 0.9, .least = 0, .below = 1},
    Hyperparameter{.name = "beta2", .standard = 0.99, .least = 0, .below = 1},
    Hyperparameter{.name = "weight_decay", .standard = 1, .least = 0, .below = unbounded},
};

class Lion final : public Optimizer {
 public:
  explicit Lion(const std::map<std::string, double>& values)
      : beta1_(static_cast<float>(values.at("beta1"))),
        beta2_(static_cast<float>(values.at("beta2"))),
        weight_decay_(values.at("weight_decay")) {}

  void begin_step(std::int64_t, float learning_rate, double gradient_scale) override {
    learning_rate_ = learning_rate;
    gradient_scale_ = static_cast<float>(gradient_scale);
    kept_ = static_cast<float>(1 - double{learning_rate} * weight_decay_);
  }

  void update(bool decay, const OptimizerElements& elements) const override {
    // Copies cannot alias the arrays, so the loop vectorises.
    const float beta1 = beta1_, new1 = 1.0f - beta1_, beta2 = beta2_, new2 = 1.0f - beta2_;
    const float rate = learning_rate_, scale = gradient_scale_, kept = decay ? kept_ : 1.0f;
    float* __restrict parameters = elements.parameters.data();
    float* __restrict average = elements.states[0].data();
    const float* __restrict gradients = elements.gradients.data();
    const std::size_t count = elements.parameters.size();
    for (std::size_t i = 0; i < count; ++i) {
      const float gradient = gradients[i] * scale;
      const float direction = beta1 * average[i] + new1 * gradient;
      const float sign = static_cast<float>((direction > 0.0f) - (direction < 0.0f));
      average[i] = beta2 * average[i] + new2 * gradient;
      parameters[i] = parameters[i] * kept - rate * sign;
    }
  }

 private:
  float beta1_, beta2_;
  double weight_decay_;
  float learning_rate_ = 0, gradient_scale_ = 1, kept_ = 1;
};

}  // namespace

extern const OptimizerKind lion_optimizer;
const OptimizerKind lion_optimizer = {
    .name = "lion",
    .states = states,
    .hyperparameters = hyperparameters,
    .make = [](const std::map<std::string, double>& values) -> std::unique_ptr<Optimizer> {
      return std::make_unique<Lion>(values);
    }};

}  // namespace sprat::fsdp
