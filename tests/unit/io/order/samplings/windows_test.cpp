// Windows of tokens: as SampleOrder has them, and each token a target once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "sprat/error.hpp"
#include "sprat/io.hpp"
#include "tests/unit/io/order/sampling_cases.hpp"

namespace sprat::io {
namespace {

/// The tokens of a sample, by their numbers in the dataset.
std::vector<std::uint64_t> tokens_of(const MemoryTable& table, const Sample& sample) {
  std::vector<std::uint64_t> tokens;
  for (const Extent& extent : sample.extents) {
    const std::uint64_t first = table.record_at(extent);
    for (std::uint64_t i = 0; i < extent.bytes / 2; ++i) {
      tokens.push_back(first + i);
    }
  }
  return tokens;
}

TEST(TokenWindows, begin_where_those_of_sample_order_do) {
  const MemoryTable table = token_files({100, 3, 200, 0, 41});
  const auto sampling =
      make_sampling({.table = table, .options = {.kind = "windows", .length = 8}, .seed = 11});
  const SampleOrder order(11, 343, 8);
  ASSERT_EQ(sampling->samples(), order.per_epoch());
  for (std::uint64_t epoch = 0; epoch < 9; ++epoch) {
    for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
      const Sample sample = sampling->sample(epoch, i, {});
      const std::uint64_t begin = order.begin(epoch * order.per_epoch() + i);
      ASSERT_EQ(sample.record, begin);
      std::vector<std::uint64_t> expected(9);
      std::iota(expected.begin(), expected.end(), begin);
      ASSERT_EQ(tokens_of(table, sample), expected);
    }
  }
}

TEST(TokenWindows, make_no_token_a_target_twice_and_leave_few_out) {
  for (const SamplingCase& one : sampling_cases()) {
    if (one.options.kind != "windows") {
      continue;
    }
    const auto sampling = one.make();
    const std::uint64_t length = one.options.length;
    for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
      std::set<std::uint64_t> targets;
      for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
        const auto tokens = tokens_of(*one.table, sampling->sample(epoch, i, {}));
        ASSERT_EQ(tokens.size(), length + 1) << one.name;
        targets.insert(tokens.begin() + 1, tokens.end());
        if (!one.options.across_files) {
          ASSERT_EQ(sampling->sample(epoch, i, {}).extents.size(), 1u) << one.name;
        }
      }
      EXPECT_EQ(targets.size(), sampling->samples() * length) << one.name << " epoch " << epoch;
    }
  }
}

TEST(TokenWindows, of_files_are_as_many_as_fit_whatever_the_shift) {
  // Files of 33 and 64 tokens have two and three windows of 16 + 1, one of 16 has none.
  const MemoryTable table = token_files({33, 16, 64});
  SamplingOptions options{.kind = "windows", .length = 16};
  options.across_files = false;
  const auto sampling = make_sampling({.table = table, .options = options, .seed = 2});
  EXPECT_EQ(sampling->samples(), 5u);
  std::set<std::uint64_t> firsts;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    for (std::uint64_t i = 0; i < 5; ++i) {
      const Sample sample = sampling->sample(epoch, i, {});
      if (sample.extents[0].file == 2) {
        firsts.insert(sample.record - 49);
      }
    }
  }
  // 63 targets are three windows and 15 tokens more: all shifts of up to 15 come.
  EXPECT_EQ(firsts.size(), 48u);
  EXPECT_EQ(*firsts.rbegin() + 16 + 1, 64u);
}

// llm.c's loader, unshuffled: rank r of R reads B * T + 1 tokens from r * B * T on, then steps on
// by R * B * T (llmc/dataloader.h).
TEST(TokenWindows, in_order_are_those_of_llm_c) {
  const MemoryTable table = token_files({1000});
  const std::uint64_t length = 16;
  const auto sampling =
      make_sampling({.table = table,
                     .options = {.kind = "windows", .shuffle = Shuffle::none, .length = length},
                     .seed = 2});
  const std::uint64_t ranks = 3, batch = 4;
  for (std::uint64_t step = 0; step < 5; ++step) {
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      for (std::uint64_t row = 0; row < batch; ++row) {
        const std::uint64_t theirs = (step * ranks + rank) * batch * length + row * length;
        const std::uint64_t slot = (step * ranks + rank) * batch + row;
        EXPECT_EQ(sampling->sample(0, slot, {}).record, theirs);
      }
    }
  }
}

TEST(TokenWindows, with_damage_are_replaced_by_the_next_sound_ones_around_the_end) {
  const MemoryTable table = token_files({81});
  const auto sampling =
      make_sampling({.table = table,
                     .options = {.kind = "windows", .shuffle = Shuffle::none, .length = 16},
                     .seed = 2});
  ASSERT_EQ(sampling->samples(), 5u);
  const std::vector<RecordRange> skipped = {{20, 21}, {79, 81}};
  const std::vector<std::uint64_t> begins = {0, 32, 32, 48, 0};
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sampling->sample(0, i, skipped).record, begins[i]) << "window " << i;
  }
  // A token that two windows have, as one's last and the next one's first, damages both.
  const std::vector<RecordRange> shared = {{32, 33}};
  EXPECT_EQ(sampling->sample(0, 1, shared).record, 48u);
  EXPECT_EQ(sampling->sample(0, 2, shared).record, 48u);
}

TEST(TokenWindows, refuse_what_is_too_short_with_the_numbers) {
  const auto error_of = [](const MemoryTable& table, const SamplingOptions& options) {
    try {
      make_sampling({.table = table, .options = options, .seed = 0});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  SamplingOptions options{.kind = "windows", .length = 16};
  EXPECT_THAT(error_of(token_files({32}), options), testing::HasSubstr("at least 33 tokens"));
  EXPECT_EQ(error_of(token_files({33}), options), "accepted");
  options.across_files = false;
  EXPECT_THAT(error_of(token_files({16, 16}), options), testing::HasSubstr("across_files=yes"));
  EXPECT_THAT(error_of(sized_files({50}, {}), options), testing::HasSubstr("packed_cut"));
  options.length = 0;
  EXPECT_THAT(error_of(token_files({33}), options), testing::HasSubstr("length=TOKENS"));
}

}  // namespace
}  // namespace sprat::io
