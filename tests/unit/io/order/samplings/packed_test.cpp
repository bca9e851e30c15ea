// Packed documents: every token once, cut where it is said, whole where it is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "sprat/error.hpp"
#include "tests/unit/io/order/sampling_cases.hpp"

namespace sprat::io {
namespace {

constexpr std::uint64_t unit = 2;

/// How often each token of a dataset comes in an epoch, by document and place in it.
std::map<std::uint64_t, std::vector<int>> counts_of(const MemoryTable& table,
                                                    const Sampling& sampling, std::uint64_t epoch,
                                                    std::uint64_t overlap) {
  std::map<std::uint64_t, std::vector<int>> counts;
  for (std::uint64_t i = 0; i < sampling.samples(); ++i) {
    const Sample sample = sampling.sample(epoch, i, {});
    EXPECT_EQ(sample.lengths.size(), sample.extents.size());
    for (std::size_t e = 0; e < sample.extents.size(); ++e) {
      const Extent& extent = sample.extents[e];
      EXPECT_EQ(extent.bytes, sample.lengths[e] * unit);
      const std::uint64_t document = table.record_at(extent);
      const Extent whole = table.record(document);
      EXPECT_LE(extent.offset + extent.bytes, whole.offset + whole.bytes) << "one document each";
      std::vector<int>& count = counts[document];
      count.resize(whole.bytes / unit);
      // The last token of a cut sample is the first of the next one.
      const std::uint64_t tokens =
          extent.bytes / unit - (e + 1 == sample.extents.size() ? overlap : 0);
      for (std::uint64_t t = 0; t < tokens; ++t) {
        ++count[(extent.offset - whole.offset) / unit + t];
      }
    }
  }
  return counts;
}

std::uint64_t total_of(const MemoryTable& table) {
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < table.records(); ++i) {
    total += table.record(i).bytes / unit;
  }
  return total;
}

TEST(PackedCut, takes_each_token_once_but_the_last_few_of_an_epoch) {
  for (const SamplingCase& one : sampling_cases()) {
    if (one.options.kind != "packed_cut") {
      continue;
    }
    const auto sampling = one.make();
    const std::uint64_t total = total_of(*one.table);
    EXPECT_EQ(sampling->samples(), (total - 1) / one.options.length) << one.name;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::uint64_t taken = 0;
      for (const auto& [document, counts] : counts_of(*one.table, *sampling, epoch, 1)) {
        for (const int count : counts) {
          ASSERT_LE(count, 1) << one.name << " document " << document;
          taken += static_cast<std::uint64_t>(count);
        }
      }
      EXPECT_EQ(taken, sampling->samples() * one.options.length) << one.name;
    }
  }
}

TEST(PackedCut, in_order_cuts_the_files_as_they_are) {
  const MemoryTable table({{6, 0, 2, 14}, {8, 30}});  // 3, 0, 1, 7; 4, 15 tokens
  const auto sampling = make_sampling(
      {.table = table,
       .options = {.kind = "packed_cut", .shuffle = Shuffle::none, .length = 6, .element_bytes = 2},
       .seed = 1});
  ASSERT_EQ(sampling->samples(), 4u);  // of 30 tokens the first is no target, and five are left
  const Sample first = sampling->sample(0, 0, {}), second = sampling->sample(0, 1, {});
  EXPECT_EQ(first.lengths, (std::vector<std::uint32_t>{3, 1, 3}));
  EXPECT_EQ(first.extents, (Extents{{0, 100, 6}, {0, 106, 2}, {0, 108, 6}}));
  EXPECT_EQ(second.lengths, (std::vector<std::uint32_t>{5, 2}));
  EXPECT_EQ(second.extents, (Extents{{0, 112, 10}, {1, 100, 4}}));
  EXPECT_EQ(second.record, 3u);
  EXPECT_EQ(sampling->sample(0, 3, {}).lengths, std::vector<std::uint32_t>{7});
}

TEST(PackedCut, in_order_is_one_row_of_tokens_cut_as_megatron_cuts_it) {
  const MemoryTable table = sized_files({30, 0, 50}, {.least = 0, .most = 12, .unit = 2});
  struct Token {
    std::uint64_t document, place;
    bool operator==(const Token&) const = default;
  };
  std::vector<Token> row;
  for (std::uint64_t document = 0; document < table.records(); ++document) {
    for (std::uint64_t place = 0; place < table.record(document).bytes / unit; ++place) {
      row.push_back({document, place});
    }
  }
  for (const std::uint64_t length : {1u, 2u, 5u, 16u, 100u}) {
    const auto sampling = make_sampling({.table = table,
                                         .options = {.kind = "packed_cut",
                                                     .shuffle = Shuffle::none,
                                                     .length = length,
                                                     .element_bytes = unit},
                                         .seed = 1});
    ASSERT_EQ(sampling->samples(), (row.size() - 1) / length);
    for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
      std::vector<Token> tokens;
      for (const Extent& extent : sampling->sample(7, i, {}).extents) {
        const std::uint64_t document = table.record_at(extent);
        const std::uint64_t first = (extent.offset - table.record(document).offset) / unit;
        for (std::uint64_t t = 0; t < extent.bytes / unit; ++t) {
          tokens.push_back({document, first + t});
        }
      }
      ASSERT_TRUE(std::ranges::equal(tokens, std::span(row).subspan(i * length, length + 1)))
          << "length " << length << ", sample " << i;
    }
  }
}

TEST(PackedWhole, takes_each_token_once_and_cuts_only_documents_that_are_too_long) {
  for (const SamplingCase& one : sampling_cases()) {
    if (one.options.kind != "packed_whole") {
      continue;
    }
    const auto sampling = one.make();
    const std::uint64_t length = one.options.length;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::uint64_t taken = 0;
      for (const auto& [document, counts] : counts_of(*one.table, *sampling, epoch, 0)) {
        for (const int count : counts) {
          ASSERT_EQ(count, 1) << one.name << " document " << document;
          ++taken;
        }
      }
      EXPECT_EQ(taken, total_of(*one.table)) << one.name;
      for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
        const Sample sample = sampling->sample(epoch, i, {});
        std::uint64_t sum = 0;
        for (std::size_t e = 0; e < sample.extents.size(); ++e) {
          sum += sample.lengths[e];
          const std::uint64_t whole =
              one.table->record(one.table->record_at(sample.extents[e])).bytes / unit;
          ASSERT_TRUE(sample.lengths[e] == whole || sample.lengths[e] == length ||
                      (whole > length && sample.lengths[e] == whole % length))
              << one.name;
        }
        ASSERT_LE(sum, length) << one.name;
        ASSERT_GT(sum, 0u) << one.name;
      }
    }
  }
}

TEST(PackedWhole, puts_other_documents_together_each_epoch) {
  const MemoryTable table = sized_files({3000}, {.least = 1, .most = 40, .unit = 2});
  const auto sampling = make_sampling(
      {.table = table,
       .options = {.kind = "packed_whole", .length = 64, .element_bytes = 2, .block = 1000},
       .seed = 1});
  const auto partners = [&](std::uint64_t epoch) {
    std::set<std::pair<std::uint64_t, std::uint64_t>> pairs;
    for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
      const Sample sample = sampling->sample(epoch, i, {});
      for (const Extent& a : sample.extents) {
        for (const Extent& b : sample.extents) {
          const std::uint64_t one = table.record_at(a), other = table.record_at(b);
          // Of the shortest, all of a length share a sample.
          if (one < other && a.bytes > 20 * unit && b.bytes > 20 * unit) {
            pairs.emplace(one, other);
          }
        }
      }
    }
    return pairs;
  };
  const auto first = partners(0), second = partners(1);
  std::uint64_t both = 0;
  for (const auto& pair : first) {
    both += second.count(pair);
  }
  // A block has some 25 documents of each length, so one pair in 25 comes again by chance.
  EXPECT_LT(both, first.size() / 10) << "of " << first.size() << " and " << second.size();
}

TEST(PackedWhole, is_the_same_whoever_computes_its_table) {
  const MemoryTable table = sized_files({500, 700}, {.least = 0, .most = 90, .unit = 2});
  const RunTasks threads = [](std::size_t tasks, const std::function<void(std::size_t)>& task) {
    std::vector<std::thread> all;
    for (std::size_t i = tasks; i-- > 0;) {
      all.emplace_back([&task, i] { task(i); });
    }
    for (std::thread& thread : all) {
      thread.join();
    }
  };
  for (const char* kind : {"packed_whole", "packed_cut"}) {
    SamplingOptions options{.kind = kind, .length = 64, .element_bytes = 2};
    options.block = std::string(kind) == "packed_whole" ? 100 : options.block;
    const auto alone = make_sampling({.table = table, .options = options, .seed = 1});
    const auto together =
        make_sampling({.table = table, .options = options, .seed = 1, .run = threads});
    ASSERT_EQ(alone->samples(), together->samples());
    for (std::uint64_t i = 0; i < alone->samples(); ++i) {
      ASSERT_EQ(hash_of(alone->sample(1, i, {})), hash_of(together->sample(1, i, {}))) << kind;
    }
  }
}

TEST(Documents, a_damaged_one_is_replaced_by_as_many_tokens_of_those_behind_it) {
  const MemoryTable table({{6, 10, 4, 0, 8}});  // 3, 5, 2, 0, 4 tokens
  const SamplingOptions options{
      .kind = "packed_cut", .shuffle = Shuffle::none, .length = 6, .element_bytes = 2};
  const auto sampling = make_sampling({.table = table, .options = options, .seed = 1});
  const std::vector<RecordRange> skipped = {{1, 2}};
  // Instead of 4 tokens of document 1: 2 of document 2, and 2 of document 4.
  EXPECT_EQ(sampling->sample(0, 0, skipped).extents,
            (Extents{{0, 100, 6}, {0, 116, 4}, {0, 120, 4}}));
  EXPECT_EQ(sampling->sample(0, 1, skipped).extents,
            (Extents{{0, 116, 4}, {0, 116, 4}, {0, 120, 6}}));
}

TEST(Documents, pieces_of_a_long_damaged_one_are_replaced_by_different_ones) {
  const MemoryTable table({{40, 10, 10, 10, 10, 10}});
  const SamplingOptions options{
      .kind = "packed_whole", .shuffle = Shuffle::none, .length = 5, .element_bytes = 2};
  const auto sampling = make_sampling({.table = table, .options = options, .seed = 1});
  const std::vector<RecordRange> skipped = {{0, 1}};
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sampling->sample(0, i, skipped).record, i + 1);
  }
}

TEST(Documents, that_end_within_a_token_are_named) {
  const MemoryTable table({{6, 10}, {5}});
  try {
    make_sampling({.table = table,
                   .options = {.kind = "packed_cut", .length = 4, .element_bytes = 2},
                   .seed = 1});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr(
                                  "file1: document 2 at byte 100 has 5 bytes, which are no whole"));
  }
}

}  // namespace
}  // namespace sprat::io
