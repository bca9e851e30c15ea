#include "checkpoint/plan/names.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/plan/cover.hpp"
#include "checkpoint/plan/held_parameters.hpp"
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

/// "parameter "w" of unit "h.0"".
std::string named(const ModelState& held, const ParameterPlace& place) {
  return text("parameter \"", spec_at(held, place).name, "\" of unit \"",
              held.units[place.unit].spec->name, "\"");
}

/// "[0:2, 0:8] of [0:4, 0:8]".
std::string described_part(const ParameterSpec& parameter) {
  return text(describe(held_box(parameter)), " of ", describe(whole_box(parameter.shape)));
}

void check_name(const std::string& name, const std::string& unit) {
  require(!name.starts_with("optimizer.") && name != "__metadata__" && is_utf8(name),
          "a parameter of unit \"", unit, "\" is called \"", name,
          "\"; checkpoints take UTF-8, keep names that begin with \"optimizer.\" for the "
          "optimizer, and \"__metadata__\" for the format");
}

/// Of two parts that share elements the later, and the one before it.
[[noreturn]] void refuse_overlap(const ModelState& held, const std::vector<ParameterPlace>& parts) {
  for (std::size_t later = 1; later < parts.size(); ++later) {
    for (std::size_t first = 0; first < later; ++first) {
      const ParameterSpec &a = spec_at(held, parts[first]), &b = spec_at(held, parts[later]);
      if (intersection(held_box(a), held_box(b))) {
        throw Error(
            ErrorCode::invalid_argument,
            text(named(held, parts[later]), " has the name of one of unit \"",
                 held.units[parts[first].unit].spec->name, "\", and elements of it: they are ",
                 described_part(b), " and ", describe(held_box(a)),
                 "; in a checkpoint every parameter needs a name of its own, unless it is "
                 "tied or another part of the same tensor"));
      }
    }
  }
  throw Error(ErrorCode::internal, "parts of a tensor share elements, and no two of them do");
}

void check_parts(const ModelState& held, const std::vector<ParameterPlace>& parts) {
  const ParameterSpec& first = spec_at(held, parts[0]);
  if (parts.size() == 1 && !first.box) {
    return;  // as nearly all are
  }
  std::vector<Box> boxes;
  for (const ParameterPlace& part : parts) {
    const ParameterSpec& parameter = spec_at(held, part);
    require(parameter.shape == first.shape, named(held, part), " has the name of one of unit \"",
            held.units[parts[0].unit].spec->name, "\" that has another shape: they are parts of ",
            describe(whole_box(parameter.shape)), " and of ", describe(whole_box(first.shape)),
            "; in a checkpoint every parameter needs a name of its own, unless it is tied or "
            "another part of the same tensor");
    boxes.push_back(held_box(parameter));
  }
  const auto fault = cover_fault(first.shape, boxes);
  if (fault && fault->is_twice) {
    refuse_overlap(held, parts);
  }
  require(!fault, named(held, parts[0]), " is ", described_part(first),
          ", and no rank has its element ", fault ? describe_element(fault->element) : "",
          "; all ranks that have a part of a tensor take part in a checkpoint");
}

void check_copy(const ModelState& held, const ParameterPlace& copy,
                const std::vector<ParameterPlace>& parts) {
  require(!parts.empty(), named(held, copy),
          " is tied, and no stage has the one that it is tied to");
  const ParameterSpec& tied = spec_at(held, copy);
  const std::string& owner = held.units[parts[0].unit].spec->name;
  require(spec_at(held, parts[0]).shape == tied.shape, named(held, copy),
          " is tied to one of unit \"", owner, "\" that has another shape");
  const bool found = std::ranges::any_of(parts, [&](const ParameterPlace& part) {
    return held_box(spec_at(held, part)) == held_box(tied);
  });
  require(found, named(held, copy), " is tied to one of unit \"", owner, "\", of which it has ",
          described_part(tied), " and no rank the same part; cut both alike");
}

}  // namespace

void check_names(const ModelState& held) {
  for (const StoredUnit& unit : held.units) {
    for (const ParameterSpec& parameter : unit.spec->parameters) {
      check_name(parameter.name, unit.spec->name);
    }
  }
  for (const auto& [name, parameter] : held_parameters(held)) {
    if (!parameter.parts.empty()) {
      check_parts(held, parameter.parts);
    }
    for (const ParameterPlace& copy : parameter.copies) {
      check_copy(held, copy, parameter.parts);
    }
  }
}

}  // namespace sprat::fsdp
