// Records: each once, and near each other where that is asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sprat/io.hpp"
#include "tests/unit/io/order/sampling_cases.hpp"

namespace sprat::io {
namespace {

TEST(Records, are_those_of_the_permutation) {
  const MemoryTable table = sized_files({40, 60}, {});
  const auto sampling = make_sampling({.table = table, .options = {}, .seed = 17});
  ASSERT_EQ(sampling->samples(), 100u);
  for (const std::uint64_t epoch : {0u, 4u}) {
    const Permutation permutation(17, epoch, 100);
    for (std::uint64_t i = 0; i < 100; ++i) {
      const Sample sample = sampling->sample(epoch, i, {});
      ASSERT_EQ(sample.record, permutation(i));
      ASSERT_EQ(sample.extents, Extents{table.record(permutation(i))});
    }
  }
}

TEST(Records, in_chunks_come_from_few_files_at_a_time) {
  const MemoryTable table = sized_files(std::vector<std::uint64_t>(50, 20), {});
  SamplingOptions options{.shuffle = Shuffle::chunks};
  options.mixed_chunks = 5;
  const auto sampling = make_sampling({.table = table, .options = options, .seed = 3});
  std::set<std::uint64_t> all;
  for (std::uint64_t window = 0; window < 10; ++window) {
    std::set<std::uint32_t> files;
    for (std::uint64_t i = 0; i < 100; ++i) {
      const Sample sample = sampling->sample(0, window * 100 + i, {});
      files.insert(sample.extents[0].file);
      all.insert(sample.record);
    }
    EXPECT_EQ(files.size(), 5u) << "window " << window;
  }
  EXPECT_EQ(all.size(), 1000u);
}

TEST(Records, a_damaged_one_is_replaced_by_the_next_sound_one_of_the_files) {
  const MemoryTable table = sized_files({10}, {});
  const auto sampling =
      make_sampling({.table = table, .options = {.shuffle = Shuffle::none}, .seed = 3});
  const std::vector<RecordRange> skipped = {{3, 5}, {9, 10}};
  const std::vector<std::uint64_t> expected = {0, 1, 2, 5, 5, 5, 6, 7, 8, 0};
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(sampling->sample(0, i, skipped).record, expected[i]) << "sample " << i;
  }
}

}  // namespace
}  // namespace sprat::io
