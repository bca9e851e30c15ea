#include "checkpoint/plan/held_parameters.hpp"

namespace sprat::fsdp {

std::map<std::string, HeldParameter> held_parameters(const ModelState& held) {
  std::map<std::string, HeldParameter> parameters;
  for (std::size_t unit = 0; unit < held.units.size(); ++unit) {
    const std::vector<ParameterSpec>& specs = held.units[unit].spec->parameters;
    for (std::size_t index = 0; index < specs.size(); ++index) {
      HeldParameter& parameter = parameters[specs[index].name];
      (specs[index].tied ? parameter.copies : parameter.parts)
          .push_back({.unit = unit, .index = index});
    }
  }
  return parameters;
}

}  // namespace sprat::fsdp
