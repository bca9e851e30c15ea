// Contracts between options, units and the order of visits.
#include "fsdp/plan/options.hpp"

#include <algorithm>
#include <set>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

bool is_narrow_or_f32(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

}  // namespace

FsdpOptions checked(FsdpOptions options) {
  require(options.clip_norm >= 0, "clip_norm ", options.clip_norm, " is below 0");
  require(options.reductions_in_flight >= 1, "reductions_in_flight is ",
          options.reductions_in_flight, "; it is 1 or more");
  require(is_narrow_or_f32(options.parameter_dtype), "parameter_dtype is ",
          name(options.parameter_dtype), "; it is f32, bf16 or f16");
  require(!options.stochastic_rounding || options.parameter_dtype != DType::f32,
          "stochastic_rounding rounds to bf16 or f16, and parameter_dtype is f32");
  require(is_narrow_or_f32(options.gradient_wire), "gradient_wire is ", name(options.gradient_wire),
          "; it is f32, bf16 or f16");
  return options;
}

const std::vector<UnitSpec>& with_names_of_their_own(const std::vector<UnitSpec>& units) {
  std::set<std::string> seen;
  for (const UnitSpec& unit : units) {
    require(seen.insert(unit.name).second, "two units are named \"", unit.name, "\"");
    std::set<std::string> parameters;
    for (const ParameterSpec& parameter : unit.parameters) {
      require(parameters.insert(parameter.name).second, "unit \"", unit.name,
              "\" has two parameters named \"", parameter.name, "\"");
    }
  }
  return units;
}

void check_every_unit_has_a_backward(const Visits& order) {
  for (int unit = 0; unit < order.visited(); ++unit) {
    require(std::ranges::find(order.backward, unit) != order.backward.end(),
            "backward does not visit unit \"", order.units[static_cast<std::size_t>(unit)],
            "\"; every unit has a gradient, which is reduced after its last visit there");
  }
}

}  // namespace sprat::fsdp
