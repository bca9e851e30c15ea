#include "checkpoint/checks/names.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// A name, and where it stands.
struct NamedParameter {
  const ParameterSpec* parameter;
  const UnitSpec* unit;
};

void check_name(const NamedParameter& named) {
  const std::string& name = named.parameter->name;
  require(!name.starts_with("optimizer.") && name != "__metadata__" && is_utf8(name),
          "a parameter of unit \"", named.unit->name, "\" is called \"", name,
          "\"; checkpoints take UTF-8, keep names that begin with \"optimizer.\" for the "
          "optimizer, and \"__metadata__\" for the format");
}

}  // namespace

void check_names(const ModelState& held) {
  std::map<std::string, NamedParameter> owners;
  std::vector<NamedParameter> tied;
  for (const StoredUnit& unit : held.units) {
    for (const ParameterSpec& parameter : unit.spec->parameters) {
      const NamedParameter named{.parameter = &parameter, .unit = unit.spec};
      check_name(named);
      if (parameter.tied) {
        tied.push_back(named);
        continue;
      }
      const auto [other, is_new] = owners.emplace(parameter.name, named);
      require(is_new, "parameter \"", parameter.name, "\" of unit \"", unit.spec->name,
              "\" has the name of one of unit \"", other->second.unit->name,
              "\"; in a checkpoint every parameter needs a name of its own, unless it is tied");
    }
  }
  for (const NamedParameter& copy : tied) {
    const auto owner = owners.find(copy.parameter->name);
    require(owner != owners.end(), "parameter \"", copy.parameter->name, "\" of unit \"",
            copy.unit->name, "\" is tied, and no stage has the one that it is tied to");
    require(owner->second.parameter->shape == copy.parameter->shape, "parameter \"",
            copy.parameter->name, "\" of unit \"", copy.unit->name, "\" is tied to one of unit \"",
            owner->second.unit->name, "\" that has another shape");
  }
}

}  // namespace sprat::fsdp
