// The section train.precision.
#include <fmt/format.h>

#include <span>
#include <string>

#include "sprat/wire.hpp"
#include "train/config/config_check.hpp"

namespace sprat::train {
namespace {

constexpr DType floats[] = {DType::f32, DType::bf16, DType::f16};
/// Those that gradients may travel as: floats, and codes that share a scale.
constexpr DType wires[] = {DType::f32, DType::bf16,   DType::f16,
                           DType::i8,  DType::f8e4m3, DType::f8e5m2};

void read_dtype(JsonSection& section, const std::string& key, std::span<const DType> choices,
                DType& type) {
  std::string word = name(type);
  section.read(key, word);
  std::string known;
  for (const DType one : choices) {
    if (word == name(one)) {
      type = one;
      return;
    }
    known += fmt::format("{}\"{}\"",
                         known.empty()           ? ""
                         : one == choices.back() ? " or "
                                                 : ", ",
                         name(one));
  }
  section.refuse(key, word, known.c_str());
}

/// Parameters travel as what they are, or as codes that share a scale.
void read_parameter_wire(JsonSection& section, FsdpOptions& sharding) {
  DType wire = sharding.parameter_dtype;
  const DType choices[] = {wire, DType::i8, DType::f8e4m3, DType::f8e5m2};
  read_dtype(section, "parameter_wire", choices, wire);
  if (has_block_scales(wire)) {
    sharding.parameter_wire = wire;
  }
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
  read_dtype(section, "parameters", floats, sharding.parameter_dtype);
  read_parameter_wire(section, sharding);
  read_dtype(section, "gradient_wire", wires, sharding.gradient_wire);
  section.read("error_feedback", sharding.error_feedback);
  section.read("stochastic_rounding", sharding.stochastic_rounding);
  read_loss_scale(section, sharding);
  section.end();
  check(!sharding.error_feedback || has_block_scales(sharding.gradient_wire),
        "train.precision.error_feedback is true and gradient_wire is \"{}\", which nothing is fed "
        "back from; leave it out, or set gradient_wire to \"i8\", \"f8e4m3\" or \"f8e5m2\"",
        name(sharding.gradient_wire));
  check(!sharding.stochastic_rounding || sharding.parameter_dtype != DType::f32,
        "train.precision.stochastic_rounding is true and parameters are f32, which are not "
        "rounded; set train.precision.parameters to \"bf16\" or \"f16\"");
}

}  // namespace sprat::train
