// Released files come back ahead of their reader, by requests or by reads; what is lost is told.
#include "io/loader/lustre/restorer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sprat/error.hpp"
#include "tests/unit/io/loader/lustre/scripted_lustre.hpp"

namespace sprat::io {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// Files of 1,000 bytes each, in their order, on windows of ten tokens.
struct RestoredFolder : LustreFolder {
  explicit RestoredFolder(std::size_t count)
      : LustreFolder(std::vector<std::size_t>(count, 1000)),
        stream(std::make_shared<const SampleStream>(StreamOptions{
            .sources = {{.table = dataset,
                         .sampling = {.kind = "windows", .shuffle = Shuffle::none, .length = 10}}},
            .seed = 3})) {
    for (std::size_t file = 0; file < count; ++file) {
      lustre->lay(name(file), {1, 2});
    }
  }

  RestorerOptions options(const RestoreOptions& restoring = {}) {
    return {.files = files,
            .mounts = std::make_shared<LustreMounts>(lustre, std::nullopt),
            .uses = {.files = files,
                     .stream = stream,
                     .batches = GlobalBatches({.epoch_samples = stream->samples(), .batch = 8}),
                     .behind_last = UINT64_C(1) << 40},
            .restoring = restoring,
            .notice = bell.ring()};
  }

  /// Waits until so many files have ended, and gives them by name.
  std::map<std::string, EndedRestore> ended(Restorer& restorer, std::size_t count) {
    std::map<std::string, EndedRestore> all;
    EXPECT_TRUE(bell.wait_for([&] {
      for (const EndedRestore& end : restorer.take_ended()) {
        all[name(end.file)] = end;
      }
      return all.size() >= count;
    })) << all.size()
        << " of " << count;
    return all;
  }

  std::shared_ptr<const SampleStream> stream;
  Bell bell;
};

TEST(Restorer, asks_for_released_files_ahead_of_their_reader) {
  RestoredFolder folder(5);
  folder.lustre->release("b.bin");
  folder.lustre->release("d.bin");
  Restorer restorer(folder.options());
  const auto ended = folder.ended(restorer, 2);  // nobody has come to any file yet
  EXPECT_FALSE(ended.at("b.bin").lost);
  EXPECT_FALSE(ended.at("d.bin").lost);
  EXPECT_THAT(folder.lustre->requested(), UnorderedElementsAre("b.bin", "d.bin"));
  EXPECT_EQ(restorer.progress().restored_bytes, 2000u);
  EXPECT_EQ(restorer.progress().left_bytes, 0u);
}

TEST(Restorer, a_file_that_is_there_is_told_to_be_there) {
  RestoredFolder folder(2);
  Restorer restorer(folder.options());
  restorer.needs(1, 0);
  EXPECT_FALSE(folder.ended(restorer, 1).at("b.bin").lost);
  EXPECT_THAT(folder.lustre->requested(), IsEmpty());
}

TEST(Restorer, reads_first_bytes_where_requests_are_refused) {
  RestoredFolder folder(3);
  folder.lustre->answer_requests(EPERM);
  folder.lustre->release("c.bin");
  Restorer restorer(folder.options());
  restorer.needs(2, 0);
  EXPECT_FALSE(folder.ended(restorer, 1).at("c.bin").lost) << "its first byte can be read";
}

TEST(Restorer, tells_of_what_is_lost_each_time_that_it_is_needed) {
  RestoredFolder folder(3);
  folder.lustre->release("b.bin", 0xd | hsm_lost);
  Restorer restorer(folder.options());
  for (int time = 0; time < 2; ++time) {
    restorer.needs(1, 0);
    const EndedRestore end = folder.ended(restorer, 1).at("b.bin");
    EXPECT_TRUE(end.lost);
    EXPECT_THAT(end.why, HasSubstr("the archive has lost it"));
  }
  EXPECT_THAT(lost_text("/fsx/b.bin", "why"), HasSubstr("lfs hsm_restore /fsx/b.bin"));
}

TEST(Restorer, ranks_share_the_files_and_ask_for_none_twice) {
  RestoredFolder folder(20);
  std::set<std::string> all;
  for (std::size_t file = 0; file < 20; ++file) {
    folder.lustre->release(LustreFolder::name(file));
  }
  Restorer first(folder.options({.host = 0, .hosts = 2, .seed = 9}));
  Restorer second(folder.options({.host = 1, .hosts = 2, .seed = 9}));
  EXPECT_TRUE(folder.bell.wait_for([&] { return folder.lustre->requested().size() >= 20; }));
  std::vector<std::string> asked = folder.lustre->requested();
  std::ranges::sort(asked);
  EXPECT_EQ(asked.size(), 20u);
  EXPECT_EQ(std::ranges::adjacent_find(asked), asked.end());
}

TEST(Restorer, takes_over_what_another_rank_should_have_asked_for) {
  RestoredFolder folder(1);
  folder.lustre->release("a.bin");
  const int other = 1 - restoring_host(9, 0, 2);
  Restorer restorer(folder.options({.host = other, .hosts = 2, .seed = 9}));
  restorer.needs(0, 0);
  EXPECT_FALSE(folder.ended(restorer, 1).at("a.bin").lost);
  EXPECT_THAT(folder.lustre->requested(), ::testing::ElementsAre("a.bin"));
}

TEST(Restorer, looks_at_no_more_files_than_a_window) {
  RestoredFolder folder(20);
  Restorer restorer(folder.options({.horizon_files = 3, .horizon_bytes = 1}));
  restorer.needs(19, 0);  // whoever is answered knows that a turn has passed
  folder.ended(restorer, 1);
  restorer.needs(19, 0);
  folder.ended(restorer, 1);
  EXPECT_LE(folder.lustre->opens().size(), 4u + 1);
  // Behind eight files there is room for others.
  restorer.advance(8 * 50);
  EXPECT_TRUE(folder.bell.wait_for([&] {
    restorer.needs(19, 0);
    return folder.lustre->opens().size() > 6;
  }));
  EXPECT_LT(folder.lustre->opens().size(), 16u);
}

TEST(Restorer, asks_where_nobody_says_how_much_is_free) {
  RestoredFolder folder(1);
  folder.lustre->release("a.bin");
  folder.lustre->have_room(0, 0);
  Restorer restorer(folder.options());
  restorer.needs(0, 0);
  EXPECT_FALSE(folder.ended(restorer, 1).at("a.bin").lost);
}

TEST(Restorer, waits_where_nothing_is_free) {
  RestoredFolder folder(2);
  folder.lustre->release("a.bin");
  folder.lustre->have_room(1'000'000, 0);
  Restorer restorer(folder.options());
  restorer.needs(0, 0);
  restorer.needs(1, 0);
  // When the second one is told to be there, a turn has passed that the first one had a part in.
  EXPECT_FALSE(folder.ended(restorer, 1).contains("a.bin"));
  EXPECT_THAT(folder.lustre->requested(), IsEmpty());
  EXPECT_EQ(restorer.progress().left_bytes, 1000u);
}

TEST(Restorer, ends_while_a_file_never_comes_back) {
  RestoredFolder folder(1);
  folder.lustre->release("a.bin");
  folder.lustre->answer_requests(0, 1'000'000);
  Restorer restorer(folder.options());
  restorer.needs(0, 0);
  EXPECT_TRUE(restorer.take_ended().empty());
}

}  // namespace
}  // namespace sprat::io
