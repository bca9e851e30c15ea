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
void read_loss_scale(JsonSection& section, PrecisionConfig& precision) {
  const std::string key = "loss_scale";
  const nlohmann::json* value = section.find(key);
  if (value == nullptr) {
    // Without a scale, small gradients of f16 would be zero.
    precision.dynamic_loss_scale =
        precision.parameters == DType::f16 || precision.gradient_wire == DType::f16;
    return;
  }
  precision.dynamic_loss_scale = !value->is_number();
  if (value->is_number()) {
    precision.loss_scale = value->get<double>();
    check(precision.loss_scale > 0, "train.precision.loss_scale is {}; it is above 0",
          precision.loss_scale);
  } else if (value->is_object()) {
    JsonSection dynamic = section.section(key);
    dynamic.read("initial", precision.loss_scale);
    dynamic.read("least", precision.least_loss_scale);
    dynamic.read("window", precision.loss_scale_window);
    dynamic.read("hysteresis", precision.loss_scale_hysteresis);
    dynamic.end();
  } else if (*value != "dynamic") {
    section.refuse(key, *value, "a power of two, \"dynamic\", or a section {...}");
  }
}

}  // namespace

void read_precision(JsonSection& train, PrecisionConfig& precision) {
  JsonSection section = train.section("precision");
  read_dtype(section, "parameters", precision.parameters);
  read_dtype(section, "gradient_wire", precision.gradient_wire);
  section.read("stochastic_rounding", precision.stochastic_rounding);
  read_loss_scale(section, precision);
  section.end();
  check(!precision.stochastic_rounding || precision.parameters != DType::f32,
        "train.precision.stochastic_rounding is true and parameters are f32, which are not "
        "rounded; set train.precision.parameters to \"bf16\" or \"f16\"");
}

}  // namespace sprat::train
