// Which units have which parts of which parameter, over all ranks of a job. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "fsdp/model_state.hpp"

namespace sprat::fsdp {

/// A parameter of a unit.
struct ParameterPlace {
  std::size_t unit = 0, index = 0;

  friend bool operator==(const ParameterPlace&, const ParameterPlace&) = default;
};

/// All that there is of a parameter of one name.
struct HeldParameter {
  std::vector<ParameterPlace> parts;   ///< Whose boxes together are the tensor.
  std::vector<ParameterPlace> copies;  ///< Tied ones: each is one of the parts once more.
};

/// By name; places in the order of units.
std::map<std::string, HeldParameter> held_parameters(const ModelState& held);

inline const ParameterSpec& spec_at(const ModelState& held, const ParameterPlace& place) {
  return held.units[place.unit].spec->parameters[place.index];
}

}  // namespace sprat::fsdp
