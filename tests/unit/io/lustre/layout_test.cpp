// Layouts of Lustre: golden bytes, each rule of parsing, and maps held against a slow model.
#include "io/lustre/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sprat/error.hpp"
#include "tests/unit/io/lustre/lov_bytes.hpp"
#include "tests/unit/io/lustre/target_at.hpp"

namespace sprat::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t mib = 1 << 20, end_of_file = UINT64_MAX;
constexpr std::uint32_t v1 = 0x0BD10BD0, v3 = 0x0BD30BD0, specific = 0x0BD50BD0,
                        extending = 0x0BD80BD0;

constexpr const char* golden_v1 =
    "d00bd10b 01000000 0100000000000000 0104000002000000 00001000 0200 ffff"
    "0b00000000000000 0000000001000000 00000000 03000000"
    "0c00000000000000 0000010001000000 00000000 05000000";
constexpr const char* golden_released =
    "d00bd10b 01000080 0100000000000000 0104000002000000 00001000 0100 ffff";

/// FSx's default: components of 1, 8, 16 and 32 stripes, of which two were written to.
std::vector<std::byte> fsx_default() {
  return lov_composite({
      {.begin = 0, .end = 100 * mib, .id = 1, .osts = {3}},
      {.begin = 100 * mib, .end = 10240 * mib, .id = 2, .osts = {4, 5, 6, 7, 0, 1, 2, 3}},
      {.begin = 10240 * mib,
       .end = 102400 * mib,
       .id = 3,
       .flags = 0,
       .stripe_count = 16,
       .osts = {}},
      {.begin = 102400 * mib,
       .end = end_of_file,
       .id = 4,
       .flags = 0,
       .stripe_count = 32,
       .osts = {}},
  });
}

void expect_refusal(const std::vector<std::byte>& bytes, const char* why) {
  try {
    parse_lustre_layout(bytes);
    ADD_FAILURE() << "taken, though " << why;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

TEST(LustreLayout, golden_file_of_two_stripes) {
  const auto bytes = bytes_of_hex(golden_v1);
  ASSERT_EQ(bytes.size(), 80u);
  const LustreLayout layout = parse_lustre_layout(bytes);
  ASSERT_EQ(layout.components.size(), 1u);
  EXPECT_EQ(layout.components[0].stripe_bytes, mib);
  EXPECT_THAT(layout.components[0].osts, ElementsAre(3, 5));
  const FileLayout file = file_layout(layout, 10 * mib);
  ASSERT_EQ(file.size(), 1u);
  EXPECT_EQ(file[0].end, 10 * mib);
  EXPECT_EQ(target_at(file, 0), 3);
  EXPECT_EQ(target_at(file, mib), 5);
  EXPECT_EQ(target_at(file, 2 * mib), 3);
  EXPECT_EQ(lov_blob({.osts = {3, 5}, .magic = v1}).size(), 80u);
}

TEST(LustreLayout, golden_released_file) {
  const auto bytes = bytes_of_hex(golden_released);
  ASSERT_EQ(bytes.size(), 32u);
  const LustreLayout layout = parse_lustre_layout(bytes);
  EXPECT_TRUE(layout.released);
  EXPECT_EQ(target_at(file_layout(layout, mib), 0), unknown_target);
}

TEST(LustreLayout, golden_fsx_default) {
  const auto bytes = fsx_default();
  ASSERT_EQ(bytes.size(), 632u);
  const auto head = bytes_of_hex(
      "d00bd60b 78020000 04000000 0000 0400 0000 00 00 0000 0000 0000000000000000"
      "01000000 10000000 0000000000000000 0000400600000000 e0000000 48000000 04000000"
      "0000000000000000 00000000");
  EXPECT_TRUE(std::equal(head.begin(), head.end(), bytes.begin()));
  const LustreLayout layout = parse_lustre_layout(bytes);
  EXPECT_TRUE(layout.composite);
  ASSERT_EQ(layout.components.size(), 4u);
  EXPECT_EQ(layout.components[1].pool, "pool");
  EXPECT_EQ(layout.components[2].stripe_count, 16u);
  EXPECT_TRUE(layout.components[2].osts.empty());
  const FileLayout file = file_layout(layout, 300 * mib);
  ASSERT_EQ(file.size(), 2u);
  EXPECT_THAT(file[0].targets, ElementsAre(3));
}

TEST(LustreLayout, objects_count_and_not_stripe_count) {
  const LustreLayout layout = parse_lustre_layout(
      lov_composite({{.end = end_of_file, .flags = 0, .stripe_count = 8, .osts = {}}}));
  EXPECT_EQ(target_at(file_layout(layout, mib), 0), unknown_target);
  expect_refusal(lov_blob({.stripe_count = 3, .osts = {1, 2}, .magic = v1}), "counts 3 stripes");
}

TEST(LustreLayout, first_target_is_that_of_object_0_whatever_the_offset_says) {
  // Every writer of these tests puts 0xffff where the starting OST would be.
  const LustreLayout layout = parse_lustre_layout(lov_blob({.osts = {9, 2}, .magic = v3}));
  EXPECT_EQ(target_at(file_layout(layout, mib), 0), 9);
}

TEST(LustreLayout, stripes_are_numbered_from_the_first_byte_of_the_file) {
  const FileLayout file = file_layout(parse_lustre_layout(fsx_default()), 200 * mib);
  const std::vector<Target> osts = {4, 5, 6, 7, 0, 1, 2, 3};
  EXPECT_EQ(target_at(file, 100 * mib), osts[4]);
  EXPECT_EQ(target_at(file, 101 * mib), osts[5]);
  EXPECT_EQ(target_at(file, 104 * mib), osts[0]);
}

TEST(LustreLayout, mirrors_are_chosen_as_lustre_reads) {
  const auto chosen = [](std::uint32_t first_flags, std::uint32_t second_flags) {
    const auto bytes = lov_composite({{.id = 0x10001, .flags = first_flags, .osts = {1}},
                                      {.id = 0x20001, .flags = second_flags, .osts = {2}}},
                                     false, 0x0BD60BD0, 2);
    const LustreLayout layout = parse_lustre_layout(bytes);
    EXPECT_EQ(layout.mirrors, 2u);
    return target_at(file_layout(layout, mib), 0);
  };
  EXPECT_EQ(chosen(0x10, 0x10), 1) << "the lower id";
  EXPECT_EQ(chosen(0x10, 0x12), 2) << "preferred for reading";
  EXPECT_EQ(chosen(0x11, 0x10), 2) << "the first is stale";
  EXPECT_EQ(chosen(0x18, 0x10), 2) << "the first is offline";
  EXPECT_EQ(chosen(0x90, 0x10), 2) << "the first is parity";
  EXPECT_EQ(chosen(0x00, 0x10), 2) << "the first was never written";
  EXPECT_EQ(chosen(0x11, 0x18), unknown_target) << "none can be read";
}

TEST(LustreLayout, mirrors_may_have_other_components) {
  const auto bytes = lov_composite({{.end = 4 * mib, .id = 0x10001, .flags = 0x11, .osts = {1}},
                                    {.begin = 4 * mib, .id = 0x10002, .osts = {2}},
                                    {.id = 0x20001, .osts = {7, 8}}},
                                   false, 0x0BD60BD0, 2);
  const FileLayout file = file_layout(parse_lustre_layout(bytes), 8 * mib);
  ASSERT_EQ(file.size(), 2u);
  EXPECT_EQ(target_at(file, mib), 8);
  EXPECT_EQ(target_at(file, 5 * mib), 2);
}

TEST(LustreLayout, extensions_hold_no_data_and_count_in_kib) {
  const auto bytes = lov_composite({{.end = 64 * mib, .id = 1, .osts = {1}},
                                    {.begin = 64 * mib,
                                     .id = 2,
                                     .flags = 0x40,
                                     .stripe_size = 65536,
                                     .stripe_count = 1,
                                     .osts = {}}},
                                   false, extending);
  const LustreLayout layout = parse_lustre_layout(bytes);
  EXPECT_EQ(layout.components[1].stripe_bytes, 64 * mib);
  EXPECT_EQ(target_at(file_layout(layout, 65 * mib), 64 * mib), unknown_target);
}

TEST(LustreLayout, a_target_may_come_twice) {
  const LustreLayout layout =
      parse_lustre_layout(lov_blob({.pattern = 0x201, .osts = {4, 5, 4, 5}, .magic = v3}));
  EXPECT_THAT(layout.components[0].osts, ElementsAre(4, 5, 4, 5));
  EXPECT_EQ(target_at(file_layout(layout, 4 * mib), 2 * mib), 4);
}

TEST(LustreLayout, data_on_the_metadata_server_have_its_target) {
  const auto bytes =
      lov_composite({{.end = mib, .id = 1, .pattern = 0x100, .stripe_count = 0, .osts = {}},
                     {.begin = mib, .id = 2, .osts = {6}}});
  const FileLayout file = file_layout(parse_lustre_layout(bytes), 3 * mib);
  EXPECT_EQ(target_at(file, 0), metadata_target);
  EXPECT_EQ(target_at(file, mib), 6);
}

TEST(LustreLayout, specific_targets_have_the_shape_of_version_3) {
  const LustreLayout layout =
      parse_lustre_layout(lov_blob({.osts = {8, 1}, .pool_name = "flash", .magic = specific}));
  EXPECT_EQ(layout.components[0].pool, "flash");
  EXPECT_THAT(layout.components[0].osts, ElementsAre(8, 1));
}

TEST(LustreLayout, foreign_files_are_known_to_be_unknown) {
  const auto whole = LovBytes().u32(0x0BD70BD0).u32(4).u32(0xda05).u32(0).u32(7).bytes();
  const LustreLayout layout = parse_lustre_layout(whole);
  EXPECT_TRUE(layout.foreign);
  EXPECT_EQ(target_at(file_layout(layout, mib), 0), unknown_target);
  expect_refusal(LovBytes().u32(0x0BD70BD0).u32(400).u32(0xda05).u32(0).bytes(), "400 bytes");
}

TEST(LustreLayout, bytes_may_be_the_other_way_round) {
  const std::vector<LovPart> parts = {
      {.end = 100 * mib, .id = 1, .osts = {3}},
      {.begin = 100 * mib, .id = 2, .osts = {4, 5, 6, 7, 0, 1, 2, 3}}};
  const FileLayout one = file_layout(parse_lustre_layout(lov_composite(parts)), 300 * mib);
  const FileLayout other = file_layout(parse_lustre_layout(lov_composite(parts, true)), 300 * mib);
  ASSERT_EQ(one.size(), other.size());
  for (std::uint64_t at = 0; at < 300; ++at) {
    ASSERT_EQ(target_at(one, at * mib), target_at(other, at * mib)) << at;
  }
  EXPECT_EQ(parse_lustre_layout(lov_blob({.osts = {3, 5}, .magic = v1}, true)).components[0].osts,
            (std::vector<Target>{3, 5}));
}

TEST(LustreLayout, released_components_release_the_file) {
  const auto bytes =
      lov_composite({{.pattern = 0x80000001, .stripe_count = 4, .osts = {}, .pool_name = ""}});
  EXPECT_TRUE(parse_lustre_layout(bytes).released);
}

TEST(LustreLayout, what_is_damaged_is_refused_with_the_place) {
  expect_refusal({}, "too few for a magic");
  expect_refusal(LovBytes().u32(0x0BD20BD0).u64(0).bytes(), "magic");
  expect_refusal(LovBytes().u32(v1).u32(1).bytes(), "wants 32 bytes at byte 0");
  expect_refusal(lov_blob({.pattern = 0x1001, .osts = {1}, .magic = v1}), "pattern 4097");
  expect_refusal(lov_blob({.stripe_size = 5000, .osts = {1}, .magic = v1}), "5000 bytes");
  expect_refusal(lov_blob({.stripe_size = 0, .osts = {1}, .magic = v1}), "stripes of 0 bytes");
  expect_refusal(lov_blob({.osts = {0x80000000}, .magic = v1}), "names OST 2147483648");
  auto cut = fsx_default();
  cut.resize(cut.size() - 1);
  expect_refusal(cut, "ends at byte 631");
  auto beyond = fsx_default();
  beyond[32 + 24] = std::byte{0xff};  // the first component's blob
  beyond[32 + 25] = std::byte{0xff};
  expect_refusal(beyond, "ends at byte 632");
  auto many = fsx_default();
  many[14] = std::byte{0xff};  // how many components
  expect_refusal(many, "255 components in 632 bytes");
  auto backwards = fsx_default();
  backwards[32 + 8 + 7] = std::byte{1};  // the first component's beginning
  expect_refusal(backwards, "ends before");
}

TEST(LustreLayout, every_cut_is_refused_or_a_layout) {
  const auto whole = fsx_default();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<long>(bytes));
    EXPECT_THROW(parse_lustre_layout(cut), Error) << bytes;
  }
}

/// Where Lustre has the byte at `offset`, component by component.
Target slow_target_at(const LustreLayout& layout, std::uint64_t offset) {
  const LustreComponent* best = nullptr;
  for (const LustreComponent& one : layout.components) {
    const bool usable = (one.flags & 0x10) != 0 && (one.flags & (0x1 | 0x8 | 0x40 | 0x80)) == 0 &&
                        one.begin <= offset && offset < one.end && !one.osts.empty();
    const bool prefers = (one.flags & 2) != 0;
    if (usable && (best == nullptr || (prefers && (best->flags & 2) == 0) ||
                   (prefers == ((best->flags & 2) != 0) && one.mirror < best->mirror))) {
      best = &one;
    }
  }
  return best == nullptr ? unknown_target
                         : best->osts[(offset / best->stripe_bytes) % best->osts.size()];
}

TEST(LustreLayout, maps_agree_with_a_slow_model) {
  std::mt19937_64 random(7);
  const auto below = [&random](std::uint64_t end) { return random() % end; };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<LovPart> parts;
    const std::uint32_t mirrors = 1 + static_cast<std::uint32_t>(below(3));
    for (std::uint32_t mirror = 1; mirror <= mirrors; ++mirror) {
      std::uint64_t begin = 0;
      for (std::uint32_t piece = 1; piece <= 3; ++piece) {
        LovPart part{.begin = begin, .id = mirror << 16 | piece, .osts = {}};
        part.end = piece == 3 ? end_of_file : begin + (1 + below(40)) * 65536;
        part.flags = below(8) == 0 ? 0x11u : below(4) == 0 ? 0x12u : 0x10u;
        part.stripe_size = 65536u << below(4);
        for (std::uint64_t stripe = 1 + below(5); stripe > 0; --stripe) {
          part.osts.push_back(static_cast<std::uint32_t>(below(12)));
        }
        begin = part.end;
        parts.push_back(part);
      }
    }
    const LustreLayout layout = parse_lustre_layout(
        lov_composite(parts, below(2) == 0, 0x0BD60BD0, static_cast<int>(mirrors)));
    const std::uint64_t bytes = 1 + below(160 * 65536);
    const FileLayout file = file_layout(layout, bytes);
    std::uint64_t at = 0;
    for (const StripedRange& range : file) {
      EXPECT_EQ(range.begin, at);
      EXPECT_LT(range.begin, range.end);
      at = range.end;
    }
    EXPECT_EQ(at, bytes);
    for (int probe = 0; probe < 100; ++probe) {
      const std::uint64_t offset = below(bytes);
      ASSERT_EQ(target_at(file, offset), slow_target_at(layout, offset)) << trial << ' ' << offset;
    }
  }
}

}  // namespace
}  // namespace sprat::io
