// Reads of released files wait, start when the files are back, and end when they are lost.
#include "io/loader/lustre/released_reads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sprat/error.hpp"
#include "tests/unit/io/loader/lustre/scripted_lustre.hpp"

namespace sprat::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two files, of which the second is released, and a scheduler.
struct HeldFolder : LustreFolder {
  HeldFolder() : LustreFolder({1000, 1000}) {
    lustre->lay("a.bin", {1});
    lustre->lay("b.bin", {2});
    lustre->release("b.bin");
  }

  ReleasedReads reads() {
    const auto stream = std::make_shared<const SampleStream>(StreamOptions{
        .sources = {{.table = dataset, .sampling = {.kind = "windows", .length = 10}}}});
    const auto mounts = std::make_shared<LustreMounts>(lustre, std::nullopt);
    return {std::make_shared<Placement>(files, mounts, std::vector{true}),
            {.files = files,
             .mounts = mounts,
             .uses = {.files = files,
                      .stream = stream,
                      .batches = GlobalBatches({.epoch_samples = stream->samples(), .batch = 8}),
                      .behind_last = 100},
             .notice = bell.ring()},
            scheduler};
  }

  PlannedFile place(ReleasedReads& reads, std::uint32_t file) {
    return reads.place(file, 1, [this](std::uint32_t one) { return open.open(one); });
  }

  void add(std::uint64_t id, std::uint32_t file, Target target) {
    scheduler.add(std::vector{Request{.id = id,
                                      .extent = {.file = file, .offset = 0, .bytes = 100},
                                      .in_file_bytes = 100,
                                      .target = target,
                                      .due = id}});
  }

  std::vector<std::uint64_t> started() {
    std::vector<std::uint64_t> ids;
    while (const auto start = scheduler.next({})) {
      ids.push_back(start->id);
    }
    return ids;
  }

  Bell bell;
  Scheduler scheduler{{}};
  OpenFiles open{[this](std::uint32_t file) { return files->known(file); }, {}};
};

TEST(ReleasedReads, wait_until_their_file_is_back) {
  HeldFolder folder;
  folder.lustre->answer_requests(0, 2);
  ReleasedReads reads = folder.reads();
  folder.add(0, 0, folder.place(reads, 0).target);
  folder.add(1, 1, folder.place(reads, 1).target);
  EXPECT_THAT(folder.started(), ElementsAre(0));
  ReleasedState state = reads.state();
  EXPECT_EQ(state.reads_held, 1u);
  EXPECT_THAT(state.waits_for, HasSubstr("b.bin"));
  EXPECT_TRUE(folder.bell.wait_for([&] {
    EXPECT_TRUE(reads.settle().empty());
    return folder.scheduler.held() == 0;
  }));
  EXPECT_THAT(folder.started(), ElementsAre(1));
  state = reads.state();
  EXPECT_EQ(state.restored_bytes, 1000u);
  EXPECT_EQ(reads.state().restored_bytes, 0u) << "each is told once";
  EXPECT_EQ(state.waits_for, "");
  EXPECT_EQ(target_run(folder.place(reads, 1), 0).target, 2) << "where it lies is asked anew";
}

TEST(ReleasedReads, end_when_their_file_is_lost_the_later_ones_too) {
  HeldFolder folder;
  folder.lustre->release("b.bin", 0xd | hsm_lost);
  ReleasedReads reads = folder.reads();
  folder.add(1, 1, folder.place(reads, 1).target);
  std::vector<ReleasedReads::LostRead> lost;
  EXPECT_TRUE(folder.bell.wait_for([&] {
    lost = reads.settle();
    return !lost.empty();
  }));
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost.front().request, 1u);
  try {
    std::rethrow_exception(lost.front().error);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("b.bin"));
    EXPECT_THAT(error.what(), HasSubstr("lfs hsm_restore"));
  }
  EXPECT_TRUE(reads.settle().empty());
  folder.add(2, 1, folder.place(reads, 1).target);
  EXPECT_EQ(reads.settle().size(), 1u);
  EXPECT_THAT(folder.started(), ElementsAre());
  EXPECT_EQ(reads.state().waits_for, "") << "nobody waits for what is lost";
}

}  // namespace
}  // namespace sprat::io
