// Flat layouts: tensors one after another at aligned offsets, the end padded to whole shards.
#include "fsdp/plan/layout.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::size_t element_count(const UnitSpec& unit, const ParameterSpec& parameter,
                          const std::vector<std::int64_t>& extents) {
  std::size_t count = 1;
  for (const std::int64_t extent : extents) {
    require(extent >= 0, "parameter \"", parameter.name, "\" of unit \"", unit.name,
            "\" has an extent of ", extent, "; extents are 0 or more");
    require(!__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count),
            "parameter \"", parameter.name, "\" of unit \"", unit.name,
            "\" has more elements than a size can tell");
  }
  return count;
}

/// Where each parameter would lie in the unit's flat buffer if nothing was cut: parts of one tensor
/// where that tensor does.
std::vector<FlatItem> whole_items(const UnitSpec& unit) {
  std::vector<FlatItem> items;
  std::map<std::string_view, std::size_t> offsets;  // by name
  std::size_t end = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    const std::size_t next = round_up(end, parameter_alignment);
    const std::size_t offset = offsets.try_emplace(parameter.name, next).first->second;
    items.push_back({.offset = offset,
                     .count = element_count(unit, parameter, parameter.shape),
                     .decay = parameter.decay});
    end = std::max(end, offset + items.back().count);
  }
  return items;
}

}  // namespace

FlatLayout lay_out(const UnitSpec& unit, int shards, std::span<const ParameterOrigin> origins) {
  FlatLayout layout;
  std::size_t end = 0;
  for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
    const ParameterSpec& parameter = unit.parameters[index];
    const int owner = origins.empty() ? 0 : origins[index].owner;
    const bool is_owners_first = layout.segments.empty() || layout.segments.back().owner != owner;
    if (is_owners_first) {
      // So a unit's segment is as long first, in the middle or last, and stages that both have a
      // weight can add its gradients.
      end = round_up(end, block_elements);
      layout.segments.push_back({.owner = owner, .offset = end, .count = 0});
    }
    // The next part of the same tensor makes one matrix with those before it.
    const bool goes_on = !is_owners_first && unit.parameters[index - 1].name == parameter.name;
    const std::size_t offset = goes_on ? end : round_up(end, parameter_alignment);
    const std::size_t count =
        element_count(unit, parameter, parameter.box ? parameter.box->extent : parameter.shape);
    layout.items.push_back({.offset = offset, .count = count, .decay = parameter.decay});
    layout.count += count;
    end = offset + count;
  }
  layout.padded = round_up(end, static_cast<std::size_t>(shards) * block_elements);
  for (std::size_t at = 0; at < layout.segments.size(); ++at) {
    FlatSegment& segment = layout.segments[at];
    const bool last = at + 1 == layout.segments.size();
    segment.count = (last ? layout.padded : layout.segments[at + 1].offset) - segment.offset;
  }
  return layout;
}

PersistentSplit split_persistent(std::vector<UnitSpec> units, std::size_t threshold) {
  PersistentSplit split;
  const int persistent = static_cast<int>(units.size());
  std::vector<UnitSpec> last = {
      {.name = "persistent", .parameters = {}},
      {.name = "persistent, tied", .parameters = {}, .tied_to = persistent}};
  std::vector<std::vector<ParameterOrigin>> last_origins(last.size());
  for (UnitSpec& unit : units) {
    const int number = static_cast<int>(split.units.size());
    // Whatever persists of a tied unit persists of the one it is tied to: there are both or
    // neither.
    const std::size_t which = unit.tied_to < 0 ? 0 : 1;
    // Places in the whole unit are the same whatever persists and however it is cut: random
    // numbers go by them.
    const std::vector<FlatItem> whole = whole_items(unit);
    auto& places = split.places.emplace_back();
    auto& origins = split.origins.emplace_back();
    UnitSpec stay{.name = unit.name, .parameters = {}, .tied_to = unit.tied_to, .id = unit.id};
    for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
      const bool small = whole[index].count < threshold;
      std::vector<ParameterSpec>& into = small ? last[which].parameters : stay.parameters;
      places.push_back({.unit = small ? persistent + static_cast<int>(which) : number,
                        .index = static_cast<int>(into.size())});
      (small ? last_origins[which] : origins)
          .push_back(
              {.owner = number, .owner_id = unit.id.value_or(0), .offset = whole[index].offset});
      into.push_back(std::move(unit.parameters[index]));
    }
    split.units.push_back(std::move(stay));
  }
  for (std::size_t which = 0; which < last.size(); ++which) {
    if (!last[which].parameters.empty()) {
      split.units.push_back(std::move(last[which]));
      split.origins.push_back(std::move(last_origins[which]));
    }
  }
  return split;
}

ShardLayout shard_layout(const FlatLayout& layout, int shards, int shard) {
  ShardLayout result;
  result.count = layout.padded / static_cast<std::size_t>(shards);
  result.offset = result.count * static_cast<std::size_t>(shard);
  const std::size_t shard_end = result.offset + result.count;
  std::size_t covered = result.offset;
  for (std::size_t index = 0; index < layout.items.size(); ++index) {
    const FlatItem& item = layout.items[index];
    const std::size_t first = std::max(item.offset, result.offset);
    const std::size_t last = std::min(item.offset + item.count, shard_end);
    if (first >= last) {
      continue;
    }
    result.pieces.push_back({.parameter = static_cast<int>(index),
                             .shard_offset = first - result.offset,
                             .parameter_offset = first - item.offset,
                             .count = last - first});
    // The gap after a parameter goes with it: it is zero, and decay leaves zero as it is. Where the
    // next part of a tensor follows instead, both decay or neither does.
    const std::size_t end = std::min(round_up(last, parameter_alignment), shard_end);
    if (!result.ranges.empty() && result.ranges.back().decay == item.decay) {
      result.ranges.back().count += end - covered;
    } else {
      result.ranges.push_back(
          {.offset = covered - result.offset, .count = end - covered, .decay = item.decay});
    }
    covered = end;
  }
  if (covered < shard_end) {
    result.ranges.push_back(
        {.offset = covered - result.offset, .count = shard_end - covered, .decay = false});
  }
  return result;
}

}  // namespace sprat::fsdp

namespace sprat {

Box held_box(const ParameterSpec& parameter) {
  return parameter.box.value_or(whole_box(parameter.shape));
}

}  // namespace sprat
