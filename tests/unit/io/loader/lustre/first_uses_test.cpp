// First uses are those of the order itself, however they are asked for.
#include "io/loader/lustre/first_uses.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/io/loader/lustre/scripted_lustre.hpp"

namespace sprat::io {
namespace {

struct UsedFolder : LustreFolder {
  explicit UsedFolder(const std::vector<std::size_t>& bytes, Shuffle shuffle = Shuffle::full)
      : LustreFolder(bytes),
        stream(std::make_shared<const SampleStream>(StreamOptions{
            .sources = {{.table = dataset,
                         .sampling = {.kind = "windows", .shuffle = shuffle, .length = 10}}},
            .seed = 3})) {}

  FirstUsesOptions uses(std::uint64_t batch, std::uint64_t behind_last) const {
    return {.files = files,
            .stream = stream,
            .batches = GlobalBatches({.epoch_samples = stream->samples(), .batch = batch}),
            .behind_last = behind_last};
  }

  std::shared_ptr<const SampleStream> stream;
};

constexpr std::uint64_t far = UINT64_C(1) << 60;

TEST(FirstUses, are_those_of_the_order) {
  const UsedFolder folder({400, 200, 600, 80, 300});
  const GlobalBatches batches({.epoch_samples = folder.stream->samples(), .batch = 4});
  std::map<std::uint32_t, std::uint64_t> expected;
  for (std::uint64_t position = 0; position < folder.stream->samples(); ++position) {
    for (const Extent& extent :
         folder.stream->sample(batches.sample(position / 4, position % 4), SkipList(1)).extents) {
      expected.try_emplace(extent.file, position);
    }
  }
  FirstUses uses(folder.uses(4, far));
  std::map<std::uint32_t, std::uint64_t> found;
  std::uint64_t last = 0;
  while (!uses.complete()) {
    for (const FirstUse& use : uses.next({.samples = 3, .until = far, .files = 2})) {
      EXPECT_GE(use.position, last);
      last = use.position;
      EXPECT_TRUE(found.emplace(use.file, use.position).second);
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(FirstUses, look_no_further_than_they_may) {
  const UsedFolder folder({4000, 4000}, Shuffle::none);
  FirstUses uses(folder.uses(4, far));
  EXPECT_EQ(uses.next({.samples = 1000, .until = 50, .files = 9}).size(), 1u);
  EXPECT_EQ(uses.position(), 50u);
  EXPECT_TRUE(uses.next({.samples = 1000, .until = 50, .files = 9}).empty());
  EXPECT_FALSE(uses.complete());
}

TEST(FirstUses, are_no_more_than_wanted) {
  const UsedFolder folder({400, 400, 400, 400}, Shuffle::none);
  FirstUses uses(folder.uses(4, far));
  for (std::uint32_t file = 0; file < 4; ++file) {
    const auto found = uses.next({.samples = 1000, .until = far, .files = 1});
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().file, file);
    EXPECT_LE(found.size(), 1u);
  }
  EXPECT_TRUE(uses.complete());
}

TEST(FirstUses, end_with_the_run) {
  const UsedFolder folder({4000, 4000}, Shuffle::none);
  FirstUses uses(folder.uses(4, 5));
  EXPECT_EQ(uses.next({.samples = 1000, .until = far, .files = 9}).size(), 1u);
  EXPECT_TRUE(uses.complete());
  EXPECT_EQ(uses.position(), 20u);
}

TEST(FirstUses, end_though_a_file_is_in_no_sample) {
  const UsedFolder folder({400, 0, 400});  // an empty file is one of the dataset's
  FirstUses uses(folder.uses(4, far));
  EXPECT_EQ(uses.next({.samples = far, .until = far, .files = 9}).size(), 2u);
  EXPECT_TRUE(uses.complete());
}

}  // namespace
}  // namespace sprat::io
