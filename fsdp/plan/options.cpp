// Contracts between options, units and the order of visits.
#include "fsdp/plan/options.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "comm/base/check.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {
namespace {

bool is_narrow_or_f32(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

void check_box(const UnitSpec& unit, const ParameterSpec& parameter) {
  const Box& box = *parameter.box;
  const Box whole = whole_box(parameter.shape);
  require(box.offset.size() == whole.extent.size() && box.extent.size() == whole.extent.size(),
          "parameter \"", parameter.name, "\" of unit \"", unit.name, "\" has ",
          whole.extent.size(), " dimensions, and its box ", box.offset.size(), " offsets and ",
          box.extent.size(), " extents; it has one of each for each dimension");
  require(contains(whole, box), "parameter \"", parameter.name, "\" of unit \"", unit.name,
          "\" is the box ", describe(box), " of ", describe(whole),
          ", which it lies outside of; a box is a part of its shape");
}

/// Parameters of one name are parts of one tensor, as rows of queries, keys and values that are
/// stored as one.
void check_namesakes(const UnitSpec& unit, const ParameterSpec& a, const ParameterSpec& b) {
  const bool are_parts = a.box && b.box && a.shape == b.shape && !intersection(*a.box, *b.box);
  require(are_parts, "unit \"", unit.name, "\" has two parameters named \"", a.name,
          "\" that are not different parts of one tensor");
  require(a.decay == b.decay, "unit \"", unit.name, "\" has parts of \"", a.name,
          "\" of which one decays and another does not; let both or neither");
}

void check_parameters(const std::vector<UnitSpec>& units) {
  std::set<std::string> seen;
  for (const UnitSpec& unit : units) {
    require(seen.insert(unit.name).second, "two units are named \"", unit.name, "\"");
    std::map<std::string, std::vector<const ParameterSpec*>> with_name;
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.box) {
        check_box(unit, parameter);
      }
      auto& others = with_name[parameter.name];
      for (const ParameterSpec* other : others) {
        check_namesakes(unit, *other, parameter);
      }
      others.push_back(&parameter);
    }
  }
}

void check_tie(const std::vector<UnitSpec>& units, std::size_t number) {
  const UnitSpec& unit = units[number];
  const bool earlier = unit.tied_to >= 0 && static_cast<std::size_t>(unit.tied_to) < number;
  require(earlier && units[static_cast<std::size_t>(unit.tied_to)].tied_to < 0, "unit \"",
          unit.name, "\" is unit ", number, " and tied to unit ", unit.tied_to,
          "; it may be tied to an earlier one that is not tied itself");
  const UnitSpec& other = units[static_cast<std::size_t>(unit.tied_to)];
  const bool same = std::ranges::equal(
      unit.parameters, other.parameters, [](const ParameterSpec& a, const ParameterSpec& b) {
        return a.name == b.name && a.shape == b.shape && a.box == b.box && a.tied == b.tied;
      });
  require(same, "unit \"", unit.name, "\" is tied to \"", other.name,
          "\", whose parameters have other names, shapes or boxes; give it the same ones");
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
  require(is_narrow_or_f32(options.gradient_wire) || has_block_scales(options.gradient_wire),
          "gradient_wire is ", name(options.gradient_wire),
          "; it is f32, bf16, f16 or, with a scale a block, i8, f8e4m3 or f8e5m2");
  require(!options.parameter_wire || has_block_scales(*options.parameter_wire),
          "parameter_wire is ", name(options.parameter_wire.value_or(DType::f32)),
          "; it is i8, f8e4m3 or f8e5m2, or left out, so that parameters travel as "
          "parameter_dtype");
  require(!options.error_feedback || has_block_scales(options.gradient_wire),
          "error_feedback adds what a gradient_wire of i8, f8e4m3 or f8e5m2 loses, and "
          "gradient_wire is ",
          name(options.gradient_wire), "; leave it out, or choose one of these wires");
  if (options.gradient_order == GradientOrder::tree) {
    options.accumulate = Accumulate::local;  // two hops would add ranks before micro-batches
  }
  return options;
}

std::vector<UnitSpec> checked(std::vector<UnitSpec> units) {
  check_parameters(units);
  std::map<std::uint64_t, std::string> with_id;
  for (std::size_t number = 0; number < units.size(); ++number) {
    UnitSpec& unit = units[number];
    unit.id = unit.id.value_or(number);
    require(*unit.id >> 32 == 0, "unit \"", unit.name, "\" has the id ", *unit.id,
            "; ids are below 2^32");
    // Nothing is drawn or summed by a tied unit's number.
    if (unit.tied_to != -1) {
      check_tie(units, number);
      continue;
    }
    const auto [other, is_new] = with_id.emplace(*unit.id, unit.name);
    require(is_new, "units \"", other->second, "\" and \"", unit.name, "\" both have the id ",
            *unit.id, "; give each its number in the whole model, or none of them any");
  }
  return units;
}

}  // namespace sprat::fsdp
