// Contracts between options, units and the order of visits.
#include "fsdp/plan/options.hpp"

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

}  // namespace sprat::fsdp
