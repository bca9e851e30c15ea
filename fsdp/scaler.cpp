// Growing and backing off, by powers of two.
#include "fsdp/scaler.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "fsdp/counters.hpp"

namespace sprat::fsdp {
namespace {

constexpr double dynamic_initial = 65536;
/// Beyond it, one over the scale times the number of tokens could be denormal as f32.
constexpr double most = 0x1p64;

constexpr const char* scale_name = "loss_scale";
constexpr const char* good_steps_name = "loss_scale_good_steps";
constexpr const char* left_name = "loss_scale_overflows_left";

bool is_power_of_two(double value) {
  int exponent = 0;
  return value > 0 && std::isfinite(value) && std::frexp(value, &exponent) == 0.5;
}

void require_power_of_two(const char* what, double value, double least, double greatest) {
  require(is_power_of_two(value) && value >= least && value <= greatest, "loss_scale.", what,
          " is ", value, "; it is a power of two from ", least, " to ", greatest);
}

LossScaleOptions checked(LossScaleOptions options) {
  if (options.initial == 0) {
    options.initial = options.dynamic ? std::max(dynamic_initial, options.least) : 1;
  }
  require_power_of_two("initial", options.initial, 1 / most, most);
  if (options.dynamic) {
    require_power_of_two("least", options.least, 1 / most, options.initial);
    require_power_of_two("growth", options.growth, 2, most);
    require_power_of_two("backoff", options.backoff, 1 / most, 0.5);
    require(options.window >= 1, "loss_scale.window is ", options.window, "; it is at least 1");
    require(options.hysteresis >= 1, "loss_scale.hysteresis is ", options.hysteresis,
            "; it is at least 1");
  }
  return options;
}

}  // namespace

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(checked(options)), scale_(options_.initial), left_(options_.hysteresis) {}

void LossScaler::update(bool overflow) {
  if (!options_.dynamic) {
    return;
  }
  if (overflow) {
    good_steps_ = 0;
    left_ = std::max(0, left_ - 1);
    if (left_ == 0) {
      back_off();
    }
  } else if (++good_steps_ == options_.window) {
    good_steps_ = 0;
    left_ = options_.hysteresis;
    scale_ = std::min(scale_ * options_.growth, most);
  }
}

void LossScaler::back_off() {
  if (scale_ == options_.least && !warned_) {
    warned_ = true;
    log().warn(
        "gradients overflow at the least loss scale, {}: such steps are skipped. Lower the "
        "learning rate or loss_scale.least, or train in bf16",
        scale_);
  }
  scale_ = std::max(scale_ * options_.backoff, options_.least);
}

std::map<std::string, double> LossScaler::counters() const {
  if (!options_.dynamic) {
    return {};  // a static scale is the options' alone
  }
  return {{scale_name, scale_}, {good_steps_name, good_steps_}, {left_name, left_}};
}

void LossScaler::restore(const std::map<std::string, double>& counters) {
  if (!options_.dynamic || !counters.contains(scale_name)) {
    return;  // of a run whose scale did not move, if there was one
  }
  const double scale = counters.at(scale_name);
  require_power_of_two("scale", scale, 1 / most, most);
  const std::int64_t good_steps = step_counter(counters, good_steps_name);
  const std::int64_t left = step_counter(counters, left_name);
  scale_ = std::max(scale, options_.least);
  good_steps_ = static_cast<int>(std::min<std::int64_t>(good_steps, options_.window - 1));
  left_ = static_cast<int>(std::min<std::int64_t>(left, options_.hysteresis));
}

}  // namespace sprat::fsdp
