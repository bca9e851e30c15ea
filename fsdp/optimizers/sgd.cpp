// Stochastic gradient descent with momentum, Nesterov's or plain, as torch.optim.SGD has it.
//
// Decay is coupled: it joins the gradient and with it the momentum. Without momentum the buffer
// holds the last gradient.
#include <array>
#include <limits>

#include "comm/base/check.hpp"
#include "fsdp/optimizer.hpp"

namespace sprat::fsdp {
namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();
constexpr std::array states = {"momentum_buffer"};
constexpr std::array hyperparameters = {
    Hyperparameter{.name = "momentum", .standard = 0.9, .least = 0, .below = 1},
    Hyperparameter{.name = "nesterov", .standard = 0, .least = 0, .below = 2},  // 0 or 1
    Hyperparameter{.name = "weight_decay", .standard = 0, .least = 0, .below = unbounded},
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const std::map<std::string, double>& values)
      : momentum_(static_cast<float>(values.at("momentum"))),
        nesterov_(values.at("nesterov") != 0),
        weight_decay_(static_cast<float>(values.at("weight_decay"))) {
    const double nesterov = values.at("nesterov");
    require(nesterov == 0 || nesterov == 1, "hyperparameter nesterov of optimizer sgd is ",
            nesterov, "; it is 0 or 1");
    require(!nesterov_ || momentum_ > 0,
            "optimizer sgd has nesterov 1 and momentum 0; give it a momentum, such as 0.9");
  }

  void begin_step(std::int64_t, float learning_rate, double gradient_scale) override {
    learning_rate_ = learning_rate;
    gradient_scale_ = static_cast<float>(gradient_scale);
  }
  void update(bool decay, const OptimizerElements& elements) const override {
    if (nesterov_) {
      update_elements<true>(decay, elements);
    } else {
      update_elements<false>(decay, elements);
    }
  }

 private:
  template <bool nesterov>
  void update_elements(bool decay, const OptimizerElements& elements) const {
    // Copies cannot alias the arrays, so the loop vectorises.
    const float momentum = momentum_, rate = learning_rate_, scale = gradient_scale_;
    const float weight_decay = decay ? weight_decay_ : 0.0f;
    float* __restrict parameters = elements.parameters.data();
    float* __restrict buffer = elements.states[0].data();
    const float* __restrict gradients = elements.gradients.data();
    const std::size_t count = elements.parameters.size();
    for (std::size_t i = 0; i < count; ++i) {
      const float gradient = gradients[i] * scale + weight_decay * parameters[i];
      const float moved = momentum * buffer[i] + gradient;
      buffer[i] = moved;
      parameters[i] -= rate * (nesterov ? gradient + momentum * moved : moved);
    }
  }

  float momentum_;
  bool nesterov_;
  float weight_decay_;
  float learning_rate_ = 0, gradient_scale_ = 1;
};

}  // namespace

extern const OptimizerKind sgd_optimizer;
const OptimizerKind sgd_optimizer = {
    .name = "sgd",
    .states = states,
    .hyperparameters = hyperparameters,
    .make = [](const std::map<std::string, double>& values) -> std::unique_ptr<Optimizer> {
      return std::make_unique<Sgd>(values);
    }};

}  // namespace sprat::fsdp
