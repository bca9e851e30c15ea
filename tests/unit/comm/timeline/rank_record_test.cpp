// What a rank tells of itself while others of its threads go on, and what it leaves when it fails.
#include "comm/timeline/rank_record.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <thread>

#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::comm::timeline {
namespace {

TEST(RankRecords, do_not_take_what_comes_while_they_are_read_for_dropped) {
  RankRecord record({.path = "", .rank = 0, .size = 1, .host = ""});
  constexpr std::size_t fits = EventRing::default_room - 1;
  std::atomic<bool> over = false;
  std::thread adding([&] {
    for (std::size_t i = 0; i < fits; ++i) {
      record.ring().add({.row = TraceRow::loader, .name = "batch"});
    }
    over = true;
  });
  do {
    EXPECT_EQ(record.tell({}).dropped, 0u);
  } while (!over);
  adding.join();
}

TEST(RankRecords, count_what_the_ring_had_no_room_for) {
  RankRecord record({.path = "", .rank = 0, .size = 1, .host = ""});
  for (std::size_t i = 0; i < EventRing::default_room + 5; ++i) {
    record.ring().add({.row = TraceRow::loader, .name = "batch"});
  }
  EXPECT_EQ(record.tell({}).dropped, 5u);
}

TEST(RankRecords, say_at_once_where_nothing_can_be_written) {
  const Folder folder;
  const auto said = [](const std::string& path, int rank) {
    testing::internal::CaptureStderr();
    const RankRecord record({.path = path, .rank = rank, .size = 2, .host = ""});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(folder / "t.json", 0), "");
  EXPECT_EQ(said("t.json", 0), "");
  EXPECT_NE(said(folder / "no/t.json", 0).find("no/t.json: No such file"), std::string::npos);
  EXPECT_EQ(said(folder / "no/t.json", 1), "") << "rank 0 alone writes it";
}

TEST(RankRecords, say_how_far_a_clock_may_have_drifted_that_was_compared_once) {
  const Folder folder;
  const std::string path = folder / "t.json";
  for (const std::int64_t error : {0, 700}) {
    RankRecord record({.path = path, .rank = 1, .size = 2, .host = "far", .job = "7-ab"});
    constexpr std::int64_t hour = 3'600'000'000'000;
    const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
    record.note_clock({.at = now.count() - hour, .offset = 5, .error = error});
    record.leave_part();
    std::ifstream file(path + ".7-ab.rank1", std::ios::binary);
    const std::string part{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const RankTimeline told =
        unpacked(std::as_bytes(std::span(part.data(), part.size())), "the part");
    // 100 millionths of an hour are 360 ms; who has rank 0's clock does not drift from it.
    EXPECT_GE(told.clock.error(), error == 0 ? 0 : error + hour / 10'000);
    EXPECT_LE(told.clock.error(), error == 0 ? 0 : 2 * hour / 10'000);
    EXPECT_EQ(told.clock.aligned(1'000), 1'005);
  }
}

}  // namespace
}  // namespace sprat::comm::timeline
