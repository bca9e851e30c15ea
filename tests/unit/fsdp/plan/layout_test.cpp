// The flat layout: every element of every parameter lies in exactly one shard.
#include "fsdp/plan/layout.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sprat::fsdp {
namespace {

UnitSpec unit_of(const std::vector<std::vector<std::int64_t>>& shapes) {
  UnitSpec unit{.name = "unit", .parameters = {}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    unit.parameters.push_back(
        {.name = "p" + std::to_string(i), .shape = shapes[i], .decay = i % 2 == 0, .initial = {}});
  }
  return unit;
}

const std::vector<std::vector<std::vector<std::int64_t>>> unit_shapes = {
    {},
    {{}},  // a scalar
    {{1}},
    {{0, 5}, {3}},
    {{64}, {64}},
    {{1024}},
    {{1025}},
    {{100, 64}, {33}, {65, 33}, {1}, {0}, {1500}},
    {{7}, {1017}, {63}, {4096}, {5}},
};
const std::vector<int> shard_counts = {1, 2, 3, 4, 5, 8, 16};

/// Parts of tensors, by names: those of q next to each other, those of w not all.
UnitSpec parts_of_tensors() {
  UnitSpec unit{.name = "parts", .parameters = {}};
  for (const auto& [name, count] : std::vector<std::pair<std::string, std::int64_t>>{
           {"a", 7}, {"q", 700}, {"q", 3}, {"q", 700}, {"w", 0}, {"w", 65}, {"b", 1}, {"w", 9}}) {
    unit.parameters.push_back(
        {.name = name, .shape = {count}, .decay = name != "q" && name != "b", .initial = {}});
  }
  return unit;
}

std::vector<UnitSpec> all_units() {
  std::vector<UnitSpec> units;
  for (const auto& shapes : unit_shapes) {
    units.push_back(unit_of(shapes));
  }
  units.push_back(parts_of_tensors());
  return units;
}

TEST(FlatLayout, parameters_are_aligned_and_disjoint_and_shards_are_whole_blocks) {
  for (const auto& shapes : unit_shapes) {
    for (const int shards : shard_counts) {
      const FlatLayout layout = lay_out(unit_of(shapes), shards);
      ASSERT_EQ(layout.items.size(), shapes.size());
      std::size_t end = 0, count = 0;
      for (const FlatItem& item : layout.items) {
        EXPECT_EQ(item.offset % parameter_alignment, 0u);
        EXPECT_GE(item.offset, end);
        EXPECT_LT(item.offset - end, parameter_alignment);
        end = item.offset + item.count;
        count += item.count;
      }
      EXPECT_EQ(layout.count, count);
      EXPECT_GE(layout.padded, end);
      EXPECT_LT(layout.padded - end, shards * block_elements);
      EXPECT_EQ(layout.padded % (shards * block_elements), 0u);
    }
  }
}

TEST(FlatLayout, parts_of_a_tensor_that_follow_each_other_have_no_gap_between) {
  const UnitSpec unit = parts_of_tensors();
  const auto offsets = [&](const std::vector<ParameterOrigin>& origins) {
    std::vector<std::size_t> result;
    for (const FlatItem& item : lay_out(unit, 1, origins).items) {
      result.push_back(item.offset);
    }
    return result;
  };
  const std::vector<std::size_t> expected = {0, 256, 956, 959, 1792, 1792, 2048, 2304};
  EXPECT_EQ(offsets({}), expected);
  std::vector<ParameterOrigin> owners(unit.parameters.size());
  for (std::size_t i = 3; i < owners.size(); ++i) {
    owners[i].owner = 1;
  }
  EXPECT_EQ(offsets(owners), (std::vector<std::size_t>{0, 256, 956, 1024, 1792, 1792, 2048, 2304}));
}

TEST(FlatLayout, offsets_do_not_depend_on_the_number_of_shards) {
  for (const auto& shapes : unit_shapes) {
    const FlatLayout one = lay_out(unit_of(shapes), 1);
    for (const int shards : shard_counts) {
      const FlatLayout other = lay_out(unit_of(shapes), shards);
      for (std::size_t i = 0; i < one.items.size(); ++i) {
        EXPECT_EQ(one.items[i].offset, other.items[i].offset) << "parameter " << i;
      }
    }
  }
}

TEST(FlatLayout, sizes_that_are_none_are_refused_by_name) {
  const std::int64_t huge = std::int64_t{1} << 32;
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3, -2}, {huge, huge}}) {
    try {
      lay_out(unit_of({{4}, shape}), 1);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("\"p1\" of unit \"unit\""), std::string::npos)
          << error.what();
    }
  }
}

TEST(FlatLayout, no_block_has_parameters_of_two_owners) {
  for (const auto& shapes : unit_shapes) {
    std::vector<ParameterOrigin> owners;  // 0 0 1 1 2 2 ...
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      owners.push_back({.owner = static_cast<int>(i / 2)});
    }
    const FlatLayout layout = lay_out(unit_of(shapes), 2, owners);
    std::size_t end = 0;
    for (const FlatSegment& segment : layout.segments) {
      EXPECT_EQ(segment.offset, end);
      EXPECT_EQ(segment.count % block_elements, 0u);
      end += segment.count;
    }
    EXPECT_EQ(end, layout.padded);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const FlatSegment& segment = layout.segments[i / 2];
      EXPECT_EQ(segment.owner, owners[i].owner);
      EXPECT_GE(layout.items[i].offset, segment.offset);
      EXPECT_LE(layout.items[i].offset + layout.items[i].count, segment.offset + segment.count);
    }
  }
}

TEST(ShardLayout, pieces_cover_every_element_once) {
  for (const UnitSpec& unit : all_units()) {
    for (const int shards : shard_counts) {
      const FlatLayout layout = lay_out(unit, shards);
      std::vector<std::size_t> next(layout.items.size(), 0);  // element expected of each parameter
      for (int shard = 0; shard < shards; ++shard) {
        const ShardLayout part = shard_layout(layout, shards, shard);
        EXPECT_EQ(part.count * shards, layout.padded);
        EXPECT_EQ(part.offset, part.count * shard);
        for (const ShardPiece& piece : part.pieces) {
          EXPECT_EQ(piece.parameter_offset, next[piece.parameter]);
          EXPECT_EQ(part.offset + piece.shard_offset,
                    layout.items[piece.parameter].offset + piece.parameter_offset);
          EXPECT_GT(piece.count, 0u);
          EXPECT_LE(piece.shard_offset + piece.count, part.count);
          next[piece.parameter] += piece.count;
        }
      }
      for (std::size_t i = 0; i < next.size(); ++i) {
        EXPECT_EQ(next[i], layout.items[i].count) << "parameter " << i << ", shards " << shards;
      }
    }
  }
}

TEST(ShardLayout, ranges_cover_the_shard_and_agree_with_the_parameters) {
  for (const UnitSpec& unit : all_units()) {
    for (const int shards : shard_counts) {
      const FlatLayout layout = lay_out(unit, shards);
      for (int shard = 0; shard < shards; ++shard) {
        const ShardLayout part = shard_layout(layout, shards, shard);
        std::vector<bool> decay;
        for (const DecayRange& range : part.ranges) {
          EXPECT_EQ(range.offset, decay.size());
          EXPECT_EQ(range.offset % parameter_alignment, 0u);
          EXPECT_EQ(range.count % parameter_alignment, 0u);
          EXPECT_GT(range.count, 0u);
          decay.insert(decay.end(), range.count, range.decay);
        }
        ASSERT_EQ(decay.size(), part.count);
        for (const ShardPiece& piece : part.pieces) {
          EXPECT_EQ(decay[piece.shard_offset], layout.items[piece.parameter].decay);
          EXPECT_EQ(decay[piece.shard_offset + piece.count - 1],
                    layout.items[piece.parameter].decay);
        }
      }
    }
  }
}

TEST(PersistentSplit, parts_of_a_tensor_are_placed_where_the_tensor_is) {
  UnitSpec cut{.name = "unit", .parameters = {}}, whole = cut;
  const auto add = [](UnitSpec& unit, const char* name, std::optional<Box> box) {
    unit.parameters.push_back(
        {.name = name, .shape = {6, 50}, .box = std::move(box), .initial = {}});
  };
  for (const char* name : {"a", "q", "b"}) {
    add(whole, name, {});
    if (name[0] != 'q') {
      add(cut, name, {});
      continue;
    }
    for (const std::int64_t row : {0, 2, 4}) {
      add(cut, name, Box{{row, 0}, {1, 50}});
    }
  }
  std::map<std::string, std::size_t> offsets;
  const PersistentSplit expected = split_persistent({whole}, 0), got = split_persistent({cut}, 0);
  for (std::size_t i = 0; i < whole.parameters.size(); ++i) {
    offsets[whole.parameters[i].name] = expected.origins[0][i].offset;
  }
  for (std::size_t i = 0; i < cut.parameters.size(); ++i) {
    EXPECT_EQ(got.origins[0][i].offset, offsets[cut.parameters[i].name]) << "parameter " << i;
  }
}

TEST(PersistentSplit, small_parameters_move_into_one_last_unit) {
  const std::vector<UnitSpec> units = {unit_of({{4, 4}, {3}}), unit_of({{2}, {5, 5}, {}})};
  const PersistentSplit split = split_persistent(units, 16);
  ASSERT_EQ(split.units.size(), 3u);
  EXPECT_EQ(split.visited(), 2u);
  EXPECT_EQ(split.units[0].parameters.size(), 1u);
  EXPECT_EQ(split.units[1].parameters.size(), 1u);
  EXPECT_EQ(split.units[2].parameters.size(), 3u);
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (std::size_t index = 0; index < units[unit].parameters.size(); ++index) {
      const auto place = split.places[unit][index];
      EXPECT_EQ(split.units[place.unit].parameters[place.index].shape,
                units[unit].parameters[index].shape);
    }
  }
  const PersistentSplit none = split_persistent(units, 0);
  EXPECT_EQ(none.units.size(), 2u);
  EXPECT_EQ(none.visited(), 2u);
}

}  // namespace
}  // namespace sprat::fsdp
