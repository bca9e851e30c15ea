// The section train.precision.
#include <string>

#include "train/config/config_check.hpp"

namespace sprat::train {
namespace {

void read_dtype(JsonSection& section, const std::string& key, DType& type) {
  std::string word = name(type);
  section.read(key, word);
  for (const DType one : {DType::f32, DType::bf16, DType::f16}) {
    if (word == name(one)) {
      type = one;
      return;
    }
  }
  section.refuse(key, word, "\"f32\", \"bf16\" or \"f16\"");
}

/// A number that stays, "dynamic", or the section of a dynamic one.
void read_loss_scale(JsonSection& section, FsdpOptions& sharding) {
  const std::string key = "loss_scale";
  const nlohmann::json* value = section.find(key);
  if (value == nullptr) {
    // Without a scale, small gradients of f16 would be zero.
    sharding.loss_scale.dynamic =
        sharding.parameter_dtype == DType::f16 || sharding.gradient_wire == DType::f16;
    return;
  }
  sharding.loss_scale.dynamic = !value->is_number();
  if (value->is_number()) {
    sharding.loss_scale.initial = value->get<double>();
    check(sharding.loss_scale.initial > 0, "train.precision.loss_scale is {}; it is above 0",
          sharding.loss_scale.initial);
  } else if (value->is_object()) {
    JsonSection dynamic = section.section(key);
    dynamic.read("initial", sharding.loss_scale.initial);
    dynamic.read("least", sharding.loss_scale.least);
    dynamic.read("window", sharding.loss_scale.window);
    dynamic.read("hysteresis", sharding.loss_scale.hysteresis);
    dynamic.end();
  } else if (*value != "dynamic") {
    section.refuse(key, *value, "a power of two, \"dynamic\", or a section {...}");
  }
}

}  // namespace

void read_precision(JsonSection& train, FsdpOptions& sharding) {
  JsonSection section = train.section("precision");
  read_dtype(section, "parameters", sharding.parameter_dtype);
  read_dtype(section, "gradient_wire", sharding.gradient_wire);
  section.read("stochastic_rounding", sharding.stochastic_rounding);
  read_loss_scale(section, sharding);
  section.end();
  check(!sharding.stochastic_rounding || sharding.parameter_dtype != DType::f32,
        "train.precision.stochastic_rounding is true and parameters are f32, which are not "
        "rounded; set train.precision.parameters to \"bf16\" or \"f16\"");
}

}  // namespace sprat::train
