// What all samplings promise, over every row of the table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "sprat/error.hpp"
#include "tests/unit/io/order/sampling_cases.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

std::vector<std::uint64_t> hashes_of(const Sampling& sampling, std::uint64_t epoch,
                                     SkippedRecords skipped = {}) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t i = 0; i < sampling.samples(); ++i) {
    hashes.push_back(hash_of(sampling.sample(epoch, i, skipped)));
  }
  return hashes;
}

std::string error_of(const SamplingInput& input) {
  try {
    make_sampling(input);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Samplings, each_is_tried_here) {
  std::set<std::string> tried, rows;
  for (const SamplingCase& one : sampling_cases()) {
    tried.insert(one.options.kind);
  }
  for (const SamplingKind* kind : all_sampling_kinds()) {
    rows.insert(kind->name);
  }
  EXPECT_EQ(tried, rows);
}

TEST(Samplings, give_each_sample_once_an_epoch_within_the_files) {
  for (const SamplingCase& one : sampling_cases()) {
    const auto sampling = one.make();
    ASSERT_GT(sampling->samples(), 4u) << one.name;
    std::set<std::uint64_t> distinct;
    for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
      const Sample sample = sampling->sample(3, i, {});
      distinct.insert(hash_of(sample));
      ASSERT_FALSE(sample.extents.empty()) << one.name;
      ASSERT_EQ(sample.source, 0u);
      ASSERT_EQ(sample.record, one.table->record_at(sample.extents.front())) << one.name;
      for (const Extent& extent : sample.extents) {
        const std::uint32_t file = extent.file;
        const Extent last = one.table->record(one.table->first_record(file + 1) - 1);
        ASSERT_GE(extent.offset, 100u) << one.name;
        ASSERT_LE(extent.offset + extent.bytes, last.offset + last.bytes) << one.name;
      }
    }
    EXPECT_EQ(distinct.size(), sampling->samples()) << one.name;
  }
}

TEST(Samplings, are_the_same_wherever_they_are_made_and_asked_in_any_order) {
  for (const SamplingCase& one : sampling_cases()) {
    const auto sampling = one.make(), other = one.make();
    const auto hashes = hashes_of(*sampling, 2);
    for (std::uint64_t i = sampling->samples(); i-- > 0;) {
      other->sample(i % 5, i, {});
      ASSERT_EQ(hash_of(other->sample(2, i, {})), hashes[i]) << one.name << " sample " << i;
    }
  }
}

TEST(Samplings, are_the_same_for_threads_that_ask_at_once) {
  for (const SamplingCase& one : sampling_cases()) {
    const auto sampling = one.make(), shared = one.make();
    std::vector<std::vector<std::uint64_t>> found(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < found.size(); ++t) {
      threads.emplace_back([&, t] { found[t] = hashes_of(*shared, t / 2); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (std::size_t t = 0; t < found.size(); ++t) {
      EXPECT_EQ(found[t], hashes_of(*sampling, t / 2)) << one.name;
    }
  }
}

TEST(Samplings, differ_by_epoch_and_by_seed_where_they_are_shuffled) {
  for (const SamplingCase& one : sampling_cases()) {
    const auto hashes = hashes_of(*one.make(), 0);
    const bool shuffled = one.options.shuffle != Shuffle::none;
    EXPECT_EQ(hashes_of(*one.make(), 1) != hashes, shuffled) << one.name;
    EXPECT_EQ(hashes_of(*one.make(6), 0) != hashes, shuffled) << one.name;
  }
}

TEST(Samplings, use_no_skipped_record_and_leave_all_other_samples_alone) {
  for (const SamplingCase& one : sampling_cases()) {
    const auto sampling = one.make();
    const std::uint64_t records = one.table->records();
    const std::vector<RecordRange> skipped = {{0, 2},
                                              {records / 3, records / 3 + 1},
                                              {records / 2, records / 2 + records / 8},
                                              {records - 3, records}};
    std::uint64_t replaced = 0;
    for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
      const Sample before = sampling->sample(1, i, {}), after = sampling->sample(1, i, skipped);
      const bool hit = touches(records_of(*one.table, before), skipped);
      replaced += hit ? 1 : 0;
      ASSERT_FALSE(touches(records_of(*one.table, after), skipped)) << one.name << " sample " << i;
      if (!hit) {
        ASSERT_EQ(hash_of(before), hash_of(after)) << one.name << " sample " << i;
      }
      std::uint64_t bytes = 0, bytes_before = 0;
      for (const Extent& extent : after.extents) {
        bytes += extent.bytes;
      }
      for (const Extent& extent : before.extents) {
        bytes_before += extent.bytes;
      }
      if (one.options.kind != "records") {
        ASSERT_EQ(bytes, bytes_before) << one.name << " sample " << i;
      }
    }
    EXPECT_GT(replaced, 0u) << one.name;
  }
}

TEST(Samplings, say_when_all_records_are_damaged) {
  for (const SamplingCase& one : sampling_cases()) {
    const auto sampling = one.make();
    const std::vector<RecordRange> all = {{0, one.table->records()}};
    try {
      sampling->sample(0, 1, all);
      ADD_FAILURE() << one.name << " gave a sample";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable) << one.name;
      EXPECT_THAT(error.what(), HasSubstr("damaged")) << one.name;
    }
  }
}

// A rank that does not know of a damaged record meets it, notes it, and asks again. What it comes
// to must be what a rank comes to that knew of all.
TEST(Samplings, come_to_the_same_whenever_damage_is_found) {
  for (const SamplingCase& one : sampling_cases()) {
    const auto sampling = one.make();
    SkipList damaged;
    // A window has many tokens, all of which must be sound.
    const std::uint64_t apart = one.options.kind == "windows" ? 50 : 2;
    for (std::uint64_t i = 1; i + 1 < one.table->records(); i += apart + mix_bits(i) % 23) {
      damaged.add(0, {i, i + 1 + mix_bits(i) % 2});
    }
    for (std::uint64_t i = 0; i < sampling->samples(); ++i) {
      SkipList found;
      for (int turn = 0; turn < 1000; ++turn) {
        bool sound = true;
        for (const std::uint64_t record :
             records_of(*one.table, sampling->sample(0, i, found.of(0)))) {
          if (touches({record}, damaged.of(0))) {
            found.add(0, {record, record + 1});
            sound = false;
          }
        }
        if (sound) {
          break;
        }
      }
      ASSERT_EQ(hash_of(sampling->sample(0, i, found.of(0))),
                hash_of(sampling->sample(0, i, damaged.of(0))))
          << one.name << " sample " << i;
    }
  }
}

TEST(Samplings, refuse_names_and_options_that_they_do_not_know) {
  const MemoryTable table = token_files({100});
  EXPECT_THAT(error_of({.table = table, .options = {.kind = "random"}}),
              HasSubstr("no sampling \"random\"; there are packed_cut, packed_whole, records"));
  EXPECT_THAT(error_of({.table = table, .options = {.kind = "records", .length = 8}}),
              HasSubstr("kind=records takes no length: leave length=8 out"));
}

TEST(Samplings, refuse_datasets_that_have_nothing) {
  const MemoryTable empty({{}, {}}, 2);
  for (const SamplingCase& one : sampling_cases()) {
    EXPECT_NE(error_of({.table = empty, .options = one.options}), "accepted") << one.name;
  }
}

TEST(Samplings, tell_their_options_where_they_are_not_as_by_default) {
  EXPECT_EQ(options_text({}), "kind=records");
  EXPECT_EQ(options_text({.kind = "windows",
                          .shuffle = Shuffle::chunks,
                          .chunk = 3,
                          .length = 8,
                          .across_files = false}),
            "kind=windows shuffle=chunks chunk=3 length=8 across_files=no");
  EXPECT_EQ(default_option("mixed_chunks"), "16");
  EXPECT_EQ(default_option("colour"), "");
}

}  // namespace
}  // namespace sprat::io
