// Restoring ahead, played with an archive that takes its time, loses requests and refuses them.
#include "io/lustre/restore_ahead.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>
#include <set>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;
using Time = RestoreAhead::Time;
using ::testing::HasSubstr;

constexpr std::uint64_t plenty = UINT64_C(1) << 50;

std::vector<ReleasedFile> some_files(std::uint32_t count, std::uint64_t bytes) {
  std::vector<ReleasedFile> files;
  for (std::uint32_t file = 0; file < count; ++file) {
    files.push_back({.file = file, .bytes = bytes, .first_use = std::uint64_t{file} * 10});
  }
  return files;
}

HsmState on_its_way() { return {.states = 0xd, .archive = 1, .progress = 2, .action = 11}; }
HsmState released_state() { return {.states = 0xd, .archive = 1}; }
HsmState back() { return {.states = 0x9, .archive = 1}; }

TEST(RestoreAhead, window_has_both_its_files_and_its_bytes) {
  // 64 files of 1 GB are more than 20 GB, so files count.
  RestoreAhead large(some_files(1000, 1'000'000'000), {});
  std::size_t begun = 0;
  for (RestoreStep step = large.next(0s, plenty); !step.restore.empty();
       step = large.next(0s, plenty)) {
    EXPECT_LE(step.restore.size(), 52u);
    begun += step.restore.size();
  }
  EXPECT_EQ(begun, 64u);
  // Of 100 MB, 200 are needed for 20 GB.
  RestoreAhead small(some_files(1000, 100'000'000), {});
  begun = 0;
  for (RestoreStep step = small.next(0s, plenty); !step.restore.empty();
       step = small.next(0s, plenty)) {
    begun += step.restore.size();
  }
  EXPECT_EQ(begun, 200u);
}

TEST(RestoreAhead, never_more_than_the_job_may_have_outstanding) {
  RestoreAhead ahead(some_files(5000, 1), {});
  std::size_t begun = 0;
  for (RestoreStep step = ahead.next(0s, plenty); !step.restore.empty();
       step = ahead.next(0s, plenty)) {
    begun += step.restore.size();
  }
  EXPECT_EQ(begun, 1000u);
  EXPECT_EQ(ahead.report().outstanding, 1000u);
}

TEST(RestoreAhead, window_moves_with_the_reader) {
  RestoreAhead ahead(some_files(300, 1'000'000'000), {});
  while (!ahead.next(0s, plenty).restore.empty()) {
  }
  ahead.advance(95);  // behind files 0 to 9
  const RestoreStep step = ahead.next(0s, plenty);
  EXPECT_EQ(step.restore, (std::vector<std::uint32_t>{64, 65, 66, 67, 68, 69, 70, 71, 72, 73}));
}

TEST(RestoreAhead, questions_become_rarer_while_nothing_happens) {
  RestoreAhead ahead(some_files(1, 1), {});
  EXPECT_EQ(ahead.next(0s, plenty).restore.size(), 1u);
  std::vector<Time> gaps;
  Time now = 0s;
  for (int question = 0; question < 8; ++question) {
    const Time then = now;
    now = ahead.wakes_at();
    ASSERT_GT(now, then);
    gaps.push_back(now - then);
    ASSERT_EQ(ahead.next(now, plenty).ask_state.size(), 1u);
    ahead.told(0, on_its_way(), now);
  }
  EXPECT_EQ(gaps.front(), 500ms);
  EXPECT_EQ(gaps.back(), 10s);
  EXPECT_TRUE(std::ranges::is_sorted(gaps));
  ahead.told(0, back(), now);
  EXPECT_TRUE(ahead.resident(0));
  ahead.next(now, plenty);
  EXPECT_EQ(ahead.wakes_at(), Time::max());
}

TEST(RestoreAhead, each_file_is_asked_for_by_one_host) {
  std::map<std::uint32_t, int> askers;
  for (int host = 0; host < 5; ++host) {
    RestoreAhead ahead(some_files(60, 1'000'000'000), {.host = host, .hosts = 5, .seed = 42});
    for (RestoreStep step = ahead.next(0s, plenty); !step.restore.empty();
         step = ahead.next(0s, plenty)) {
      for (const std::uint32_t file : step.restore) {
        ++askers[file];
        EXPECT_EQ(restoring_host(42, file, 5), host);
      }
    }
  }
  EXPECT_EQ(askers.size(), 60u);
  for (const auto& [file, times] : askers) {
    EXPECT_EQ(times, 1) << file;
  }
}

TEST(RestoreAhead, takes_over_what_a_host_that_is_gone_should_have_asked_for) {
  std::uint32_t other = 0;
  while (restoring_host(0, other, 2) == 0) {
    ++other;
  }
  RestoreAhead ahead({{.file = other, .bytes = 1, .first_use = 0}}, {.host = 0, .hosts = 2});
  Time now = 0s;
  std::size_t asked = 0;
  for (int turn = 0; turn < 10 && asked == 0; ++turn) {
    const RestoreStep step = ahead.next(now, plenty);
    asked += step.restore.size();
    for (const std::uint32_t file : step.ask_state) {
      ahead.told(file, released_state(), now);
    }
    now = std::max(now, ahead.wakes_at());
  }
  EXPECT_EQ(asked, 1u);
}

TEST(RestoreAhead, waits_for_space) {
  RestoreAhead ahead(some_files(10, 1'000'000), {.keep_free_bytes = 5'000'000});
  const RestoreStep step = ahead.next(0s, 7'500'000);
  EXPECT_EQ(step.restore.size(), 2u);
  EXPECT_TRUE(ahead.report().waits_for_space);
  EXPECT_GT(ahead.wakes_at(), Time(0s));
  EXPECT_LE(ahead.wakes_at(), Time(10s));
  EXPECT_EQ(ahead.next(1s, plenty).restore.size(), 8u);
  EXPECT_FALSE(ahead.report().waits_for_space);
}

TEST(RestoreAhead, reads_first_bytes_where_requests_are_refused) {
  RestoreAhead ahead(some_files(20, 1), {});
  const RestoreStep refused = ahead.next(0s, plenty);
  ahead.refused(refused.restore, EPERM, 0s);
  RestoreStep step = ahead.next(0s, plenty);
  EXPECT_TRUE(step.restore.empty());
  EXPECT_EQ(step.first_byte.size(), 8u) << "as many threads as there are";
  EXPECT_TRUE(ahead.report().by_first_byte);
  std::set<std::uint32_t> read;
  for (int turn = 0; turn < 10; ++turn) {
    for (const std::uint32_t file : step.first_byte) {
      read.insert(file);
      ahead.first_byte_read(file, 0, 1s);
    }
    step = ahead.next(1s, plenty);
  }
  EXPECT_EQ(read.size(), 20u);
  EXPECT_EQ(ahead.report().left_files, 0u);
  EXPECT_TRUE(ahead.report().lost.empty()) << "files are not to blame for EPERM";
}

TEST(RestoreAhead, asks_again_for_what_got_lost_and_gives_up_in_the_end) {
  RestoreAhead ahead(some_files(1, 1), {});
  std::size_t asked = 0;
  Time now = 0s;
  for (int turn = 0; turn < 100; ++turn) {
    const RestoreStep step = ahead.next(now, plenty);
    asked += step.restore.size();
    for (const std::uint32_t file : step.ask_state) {
      ahead.told(file, released_state(), now);
    }
    if (ahead.wakes_at() == Time::max()) {
      break;
    }
    now = std::max(now, ahead.wakes_at());
  }
  EXPECT_EQ(asked, 3u);
  ASSERT_EQ(ahead.report().lost.size(), 1u);
  EXPECT_THAT(ahead.report().lost[0].why, HasSubstr("3 times"));
}

TEST(RestoreAhead, lost_in_the_archive_is_for_good) {
  RestoreAhead ahead(some_files(2, 1), {});
  ahead.next(0s, plenty);
  ahead.told(0, {.states = 0x4d, .archive = 1}, 1s);
  ASSERT_EQ(ahead.report().lost.size(), 1u);
  EXPECT_EQ(ahead.report().lost[0].file, 0u);
  EXPECT_FALSE(ahead.resident(0));
  EXPECT_EQ(ahead.report().left_files, 1u);
}

TEST(RestoreAhead, refuses_lists_that_make_no_sense) {
  EXPECT_THROW(RestoreAhead({{.file = 1, .first_use = 5}, {.file = 2, .first_use = 4}}, {}), Error);
  EXPECT_THROW(RestoreAhead({{.file = 1}, {.file = 1}}, {}), Error);
  EXPECT_THROW(RestoreAhead({}, {.host = 2, .hosts = 2}), Error);
}

/// An archive that brings files back after a while, forgets a few requests, and refuses some.
class Archive {
 public:
  explicit Archive(std::uint64_t seed) : random_(seed) {}

  void answer(RestoreAhead& ahead, const RestoreStep& step, Time now) {
    if (!step.restore.empty() && random_() % 10 == 0) {
      ahead.refused(step.restore, EBUSY, now);
    } else {
      for (const std::uint32_t file : step.restore) {
        if (random_() % 20 != 0) {
          ready_.emplace(file, now + std::chrono::milliseconds(random_() % 60'000));
        }
      }
    }
    for (const std::uint32_t file : step.ask_state) {
      const auto ready = ready_.find(file);
      ahead.told(file,
                 ready == ready_.end()  ? released_state()
                 : ready->second <= now ? back()
                                        : on_its_way(),
                 now);
    }
    most_ = std::max(most_, ahead.report().outstanding);
  }
  std::size_t most() const { return most_; }

 private:
  std::mt19937_64 random_;
  std::map<std::uint32_t, Time> ready_;
  std::size_t most_ = 0;
};

TEST(RestoreAhead, always_ends_and_never_storms) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RestoreAhead ahead(some_files(400, 100'000'000), {.most_outstanding = 90});
    Archive archive(seed);
    Time now = 0s;
    int turns = 0;
    for (; ahead.report().left_files > 0 && turns < 100'000; ++turns) {
      archive.answer(ahead, ahead.next(now, plenty), now);
      ahead.advance(static_cast<std::uint64_t>(now / 1s) * 8);
      if (ahead.wakes_at() == Time::max()) {
        now += 1s;  // only the reader moves on
      }
      now = std::max(now, std::min(ahead.wakes_at(), now + 10s));
    }
    EXPECT_EQ(ahead.report().left_files, 0u) << "seed " << seed;
    EXPECT_LE(archive.most(), 90u);
    EXPECT_LT(turns, 20'000) << "seed " << seed << ": it spins";
  }
}

TEST(RestoreAhead, takes_files_while_it_runs) {
  RestoreAhead ahead({}, {});
  EXPECT_EQ(ahead.wakes_at(), Time::max());
  for (const ReleasedFile& file : some_files(70, 1'000'000'000)) {
    ahead.add(file);
  }
  EXPECT_LE(ahead.wakes_at(), Time(0s));
  std::size_t begun = 0;
  for (RestoreStep step = ahead.next(0s, plenty); !step.restore.empty();
       step = ahead.next(0s, plenty)) {
    begun += step.restore.size();
  }
  EXPECT_EQ(begun, 64u) << "the window is that of a list that was known at once";
}

TEST(RestoreAhead, a_file_that_comes_late_is_asked_for_first) {
  RestoreAhead ahead(some_files(200, 1'000'000'000), {.most_outstanding = 2});
  EXPECT_EQ(ahead.next(0s, plenty).restore, (std::vector<std::uint32_t>{0, 1}));
  ahead.add({.file = 1000, .bytes = 1, .first_use = 5});
  ahead.told(0, back(), 1s);
  EXPECT_EQ(ahead.next(1s, plenty).restore, std::vector<std::uint32_t>{1000});
  // Its place in the list comes when the window reaches it, and then it is not asked for again.
  ahead.told(1000, back(), 2s);
  ahead.advance(10'000);
  Time now = 3s;
  std::set<std::uint32_t> asked;
  for (int turn = 0; turn < 1000; ++turn) {
    const RestoreStep step = ahead.next(now, plenty);
    for (const std::uint32_t file : step.restore) {
      EXPECT_TRUE(asked.insert(file).second) << file;
    }
    for (const std::uint32_t file : step.ask_state) {
      ahead.told(file, back(), now);
    }
    now += 1s;
  }
  EXPECT_EQ(asked.size(), 198u);
  EXPECT_FALSE(asked.contains(1000));
}

TEST(RestoreAhead, a_file_that_is_released_anew_is_restored_anew) {
  RestoreAhead ahead(some_files(1, 10), {});
  EXPECT_EQ(ahead.next(0s, plenty).restore.size(), 1u);
  ahead.add({.file = 0, .bytes = 10, .first_use = 3});
  EXPECT_TRUE(ahead.next(0s, plenty).restore.empty()) << "it is on its way";
  ahead.told(0, back(), 1s);
  ahead.add({.file = 0, .bytes = 10, .first_use = 900});
  EXPECT_FALSE(ahead.resident(0));
  EXPECT_EQ(ahead.next(1s, plenty).restore.size(), 1u);
  ahead.told(0, back(), 2s);
  EXPECT_TRUE(ahead.resident(0));
  EXPECT_EQ(ahead.report().restored_bytes, 20u);
}

TEST(RestoreAhead, tells_of_each_end_once) {
  RestoreAhead ahead(some_files(3, 10), {});
  ahead.next(0s, plenty);
  ahead.told(0, back(), 1s);
  ahead.told(1, {.states = 0xd | hsm_lost, .archive = 1}, 1s);
  const std::vector<EndedRestore> ended = ahead.take_ended();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].file, 0u);
  EXPECT_FALSE(ended[0].lost);
  EXPECT_EQ(ended[1].file, 1u);
  EXPECT_TRUE(ended[1].lost);
  EXPECT_THAT(ended[1].why, HasSubstr("the archive has lost it"));
  EXPECT_TRUE(ahead.take_ended().empty());
  ahead.add({.file = 1, .bytes = 10, .first_use = 50});
  EXPECT_FALSE(ahead.resident(1)) << "what is lost stays so";
  EXPECT_TRUE(ahead.next(1s, plenty).restore.empty());
}

}  // namespace
}  // namespace sprat::io
