// Reads start in order and within limits, go on after every kind of failure, and end.
#include "io/reading/scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/reading/plan.hpp"
#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = ReadVerdict::Kind;

Request scheduled(std::uint64_t id, Target target, std::uint64_t due, std::uint64_t bytes = 100) {
  return {.id = id,
          .extent = {.file = 0, .offset = id * 10'000, .bytes = bytes},
          .in_file_bytes = bytes,
          .target = target,
          .due = due};
}

std::vector<std::uint64_t> started(Scheduler& scheduler, Moment now = {}) {
  std::vector<std::uint64_t> ids;
  while (const std::optional<ReadStart> start = scheduler.next(now)) {
    ids.push_back(start->id);
  }
  return ids;
}

using Ids = std::vector<std::uint64_t>;

TEST(Scheduler, starts_the_earliest_among_targets_that_have_room) {
  Scheduler scheduler({.reads = 10, .flow = {.least_reads = 1, .first_reads = 2, .most_reads = 2}});
  scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1), scheduled(2, 1, 2),
                            scheduled(3, 2, 5), scheduled(4, 3, 4)});
  EXPECT_EQ(started(scheduler), (Ids{0, 1, 4, 3})) << "the third at target 1 waits for a place";
  EXPECT_EQ(scheduler.done(1, 100, 0, Moment(5)).kind, Kind::whole);
  EXPECT_EQ(started(scheduler), Ids{2});
}

TEST(Scheduler, gives_the_parts_of_one_sample_to_the_least_busy_target_first) {
  Scheduler scheduler({.reads = 3});
  scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1), scheduled(2, 2, 1)});
  EXPECT_EQ(started(scheduler), (Ids{0, 2, 1}));
}

// Who looks at the load asks whether more would be given if more were ready.
TEST(Scheduler, tells_the_bound_of_bytes_where_it_comes_before_that_of_reads) {
  Scheduler scheduler({.reads = 64,
                       .target_bytes = 4 << 20,
                       .flow = {.least_reads = 64, .first_reads = 64, .most_reads = 64}});
  std::vector<Request> requests;
  for (std::uint64_t id = 0; id < 10; ++id) {
    requests.push_back(scheduled(id, 1, id, 1 << 20));
  }
  scheduler.add(requests);
  EXPECT_EQ(started(scheduler).size(), 4u);
  EXPECT_EQ(scheduler.targets()[0].cap, 4u);
  EXPECT_EQ(scheduler.targets()[0].queued, 6u);
}

TEST(Scheduler, never_gives_a_target_fewer_short_reads_than_lustre_has_in_flight) {
  Scheduler scheduler({.flow = {.least_reads = 2, .first_reads = 2}});
  for (std::uint64_t id = 0; id < 20; ++id) {
    scheduler.add(
        std::vector{scheduled(id, 1, id, 300 << 10), scheduled(100 + id, 2, id, 4 << 20)});
  }
  started(scheduler);
  const std::vector<TargetLoad> loads = scheduler.targets();
  EXPECT_EQ(loads[0].reads_in_flight, 8u);
  EXPECT_EQ(loads[0].cap, 8u) << "the report says what it may have";
  EXPECT_EQ(loads[1].reads_in_flight, 2u) << "long ones fill that room by themselves";
}

TEST(Scheduler, keeps_reads_and_bytes_under_way_within_limits) {
  Scheduler scheduler({.reads = 2, .target_bytes = 150});
  scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1, 60), scheduled(2, 2, 2),
                            scheduled(3, 3, 3)});
  EXPECT_EQ(started(scheduler), (Ids{0, 2})) << "60 bytes more are too many for target 1";
  scheduler.done(2, 100, 0, Moment(1));
  EXPECT_EQ(started(scheduler), Ids{3});
  scheduler.done(0, 100, 0, Moment(1));
  EXPECT_EQ(started(scheduler), Ids{1});
}

TEST(Scheduler, gives_room_in_the_budget_in_the_order_of_dues) {
  Scheduler scheduler({.budget_bytes = 250});
  scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1), scheduled(2, 1, 2),
                            scheduled(3, 1, 3, 10)});
  EXPECT_EQ(started(scheduler), (Ids{0, 1})) << "the short one would fit, but is not its turn";
  EXPECT_EQ(scheduler.budget_used(), 200u);
  EXPECT_EQ(scheduler.waiting(), 2u);
  scheduler.done(1, 100, 0, Moment(1));
  EXPECT_EQ(started(scheduler), Ids{}) << "what has come and is not taken counts";
  scheduler.release(1);
  EXPECT_EQ(started(scheduler), (Ids{2, 3}));
  EXPECT_EQ(scheduler.budget_used(), 210u);
}

TEST(Scheduler, refuses_a_request_that_never_fits) {
  Scheduler scheduler({.budget_bytes = 250});
  EXPECT_THROW(scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1, 251)}), Error);
  EXPECT_EQ(started(scheduler), Ids{}) << "nothing of a refused call stays";
  scheduler.add(std::vector{scheduled(0, 1, 0)});
  EXPECT_THROW(scheduler.add(std::vector{scheduled(0, 1, 0)}), Error);
}

TEST(Scheduler, tells_who_waits_in_vain_for_the_budget) {
  Scheduler scheduler({.budget_bytes = 250});
  scheduler.add(std::vector{scheduled(0, 1, 7), scheduled(1, 1, 7), scheduled(2, 1, 7)});
  EXPECT_FALSE(scheduler.starved(7)) << "two can start";
  started(scheduler);
  EXPECT_FALSE(scheduler.starved(7)) << "two are under way";
  scheduler.done(0, 100, 0, Moment(1));
  scheduler.done(1, 100, 0, Moment(1));
  EXPECT_EQ(scheduler.starved(7), 7u);
  EXPECT_EQ(scheduler.starved(9), 7u);
  EXPECT_FALSE(scheduler.starved(6)) << "sample 6 wants nothing of what waits";
}

TEST(Scheduler, brings_forward_what_is_wanted_earlier) {
  Scheduler scheduler({.budget_bytes = 250, .reads = 1});
  scheduler.add(std::vector{scheduled(0, 1, 5), scheduled(1, 1, 6), scheduled(2, 1, 7),
                            scheduled(3, 1, 8, 40)});
  scheduler.bring_forward(1, 4);
  EXPECT_EQ(started(scheduler), Ids{1}) << "it had room and was in line";
  scheduler.bring_forward(1, 9);
  scheduler.bring_forward(3, 3);
  EXPECT_EQ(scheduler.budget_used(), 240u) << "it waited for room, behind one that does not fit";
  scheduler.done(1, 100, 0, Moment(1));
  EXPECT_EQ(started(scheduler), Ids{3});
  EXPECT_THROW(scheduler.bring_forward(7, 1), Error);
}

// As when a sample's second choice is asked for behind what later samples have already.
TEST(Scheduler, exceeds_its_budget_for_what_would_wait_for_ever) {
  Scheduler scheduler({.budget_bytes = 250});
  scheduler.add(std::vector{scheduled(0, 1, 8), scheduled(1, 1, 9)});
  started(scheduler);
  scheduler.done(0, 100, 0, Moment(1));
  scheduler.done(1, 100, 0, Moment(1));
  scheduler.add(std::vector{scheduled(2, 1, 7), scheduled(3, 1, 7), scheduled(4, 1, 10, 10)});
  EXPECT_EQ(scheduler.starved(7), 7u);
  scheduler.exceed_budget(7);
  EXPECT_EQ(started(scheduler), (Ids{2, 3})) << "and no other";
  EXPECT_EQ(scheduler.budget_used(), 400u);
  scheduler.release(0);
  EXPECT_EQ(started(scheduler), Ids{}) << "there is still more than the budget";
  scheduler.release(1);
  EXPECT_EQ(started(scheduler), Ids{4});
}

TEST(Scheduler, takes_more_as_long_as_a_target_has_nobody_in_line) {
  Scheduler scheduler(
      {.budget_bytes = 400, .flow = {.least_reads = 1, .first_reads = 1, .most_reads = 1}});
  EXPECT_TRUE(scheduler.takes_more());
  scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1)});
  EXPECT_FALSE(scheduler.takes_more());
  started(scheduler);
  EXPECT_FALSE(scheduler.takes_more()) << "the second one is in line";
  scheduler.add(std::vector{scheduled(2, 2, 2)});
  started(scheduler);
  EXPECT_TRUE(scheduler.takes_more()) << "the second target has nobody in line";
  scheduler.add(std::vector{scheduled(3, 2, 3), scheduled(4, 3, 4)});
  EXPECT_FALSE(scheduler.takes_more()) << "the budget is used up";
}

TEST(Scheduler, goes_on_where_a_short_read_ended) {
  Scheduler scheduler({});
  scheduler.add(std::vector{scheduled(0, 1, 0)});
  started(scheduler);
  EXPECT_EQ(scheduler.done(0, 30, 0, Moment(1)).kind, Kind::continues);
  const std::optional<ReadStart> rest = scheduler.next(Moment(1));
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->extent, (Extent{.file = 0, .offset = 30, .bytes = 70}));
  EXPECT_EQ(rest->into, 30u);
  EXPECT_FALSE(rest->reopen);
  EXPECT_EQ(scheduler.done(0, 70, 0, Moment(2)).kind, Kind::whole);
}

TEST(Scheduler, goes_on_with_whole_blocks_where_reads_are_direct) {
  Scheduler scheduler({});
  Request request = scheduled(0, 1, 0, 16384);
  request.alignment = 4096;
  request.in_file_bytes = 9000;
  scheduler.add(std::vector{request});
  started(scheduler);
  EXPECT_EQ(scheduler.done(0, 5000, 0, Moment(1)).kind, Kind::continues);
  const std::optional<ReadStart> rest = scheduler.next(Moment(1));
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->into, 4096u);
  EXPECT_EQ(rest->extent.bytes, 16384u - 4096u);
  EXPECT_EQ(scheduler.done(0, 9000 - 4096, 0, Moment(1)).kind, Kind::whole)
      << "the file has no more";
}

TEST(Scheduler, gives_up_a_file_that_ends_early_after_one_look_at_it) {
  Scheduler scheduler({});
  scheduler.add(std::vector{scheduled(0, 1, 0)});
  started(scheduler);
  EXPECT_EQ(scheduler.done(0, 30, 0, Moment(1)).kind, Kind::continues);
  started(scheduler);
  EXPECT_EQ(scheduler.done(0, 0, 0, Moment(1)).kind, Kind::continues);
  const std::optional<ReadStart> look = scheduler.next(Moment(1));
  ASSERT_TRUE(look && look->reopen);
  const ReadVerdict verdict = scheduler.done(0, 0, 0, Moment(1));
  EXPECT_EQ(verdict.kind, Kind::failed);
  EXPECT_EQ(verdict.failure.error, 0);
  EXPECT_EQ(verdict.failure.offset, 30u);
}

TEST(Scheduler, tries_again_at_once_where_nothing_is_wrong_but_not_for_ever) {
  Scheduler scheduler({.retry_for = seconds(1)});
  scheduler.add(std::vector{scheduled(0, 1, 0)});
  Moment now{};
  int tries = 0;
  Kind kind = Kind::continues;
  while (kind == Kind::continues) {
    if (started(scheduler, now).empty()) {
      const std::optional<Moment> wakes = scheduler.wakes_at();
      ASSERT_TRUE(wakes);
      ASSERT_GT(*wakes, now) << "it spins";
      now = *wakes;
      continue;
    }
    ASSERT_LT(++tries, 100);
    kind = scheduler.done(0, 0, EINTR, now).kind;
    if (tries == 16) {
      EXPECT_EQ(now, Moment(0));
    }
  }
  EXPECT_EQ(kind, Kind::failed);
  EXPECT_GE(now, seconds(1));
}

/// How long a read fails with `error` until it is given up, and how often.
struct Patience {
  Moment lasted{};
  int tries = 0;
  ReadFailure failure;
};
Patience fail_always(int error, const SchedulerLimits& limits) {
  Scheduler scheduler(limits);
  scheduler.add(std::vector{scheduled(0, 7, 0)});
  Patience patience;
  Moment now{};
  while (patience.tries < 10'000) {
    const std::optional<ReadStart> start = scheduler.next(now);
    if (!start) {
      now = scheduler.wakes_at().value();
      continue;
    }
    EXPECT_EQ(start->reopen, patience.tries > 0);
    ++patience.tries;
    const ReadVerdict verdict = scheduler.done(start->id, 0, error, now);
    if (verdict.kind == Kind::failed) {
      patience.failure = verdict.failure;
      break;
    }
  }
  patience.lasted = now;
  return patience;
}

TEST(Scheduler, opens_anew_and_waits_longer_each_time_until_its_time_is_over) {
  for (const ErrorRule& rule : error_rules()) {
    SCOPED_TRACE(rule.error);
    if (rule.remedy == Remedy::reopen) {
      const Patience patience = fail_always(rule.error, {.retry_for = seconds(600)});
      EXPECT_GE(patience.lasted, seconds(600));
      EXPECT_LE(patience.lasted, seconds(610));
      EXPECT_GE(patience.tries, 60);
      EXPECT_LE(patience.tries, 140);
      EXPECT_EQ(patience.failure.error, rule.error);
      EXPECT_EQ(patience.failure.request.target, 7);
      EXPECT_EQ(patience.failure.attempts, static_cast<std::uint32_t>(patience.tries));
    }
    if (rule.remedy == Remedy::give_up) {
      EXPECT_EQ(fail_always(rule.error, {.retry_for = seconds(600)}).tries, 1);
    }
  }
}

TEST(Scheduler, asks_a_target_that_failed_with_one_read_and_leaves_others_alone) {
  Scheduler scheduler({});
  scheduler.add(
      std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1), scheduled(2, 1, 2), scheduled(3, 2, 3)});
  EXPECT_EQ(started(scheduler).size(), 4u);
  for (const std::uint64_t id : {0u, 1u, 2u}) {
    scheduler.done(id, 0, EIO, Moment(10));
  }
  scheduler.done(3, 100, 0, Moment(10));
  EXPECT_EQ(started(scheduler, milliseconds(10)), Ids{});
  const Moment wakes = scheduler.wakes_at().value();
  EXPECT_LE(wakes, milliseconds(101)) << "three reads that failed together are one failure";
  EXPECT_EQ(started(scheduler, wakes), Ids{0}) << "one read asks whether it is back";
  EXPECT_FALSE(scheduler.wakes_at());
  scheduler.done(0, 100, 0, wakes);
  EXPECT_EQ(started(scheduler, wakes), (Ids{1, 2}));
}

TEST(Scheduler, lets_a_stale_file_wait_and_its_target_go_on) {
  Scheduler scheduler({});
  scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1)});
  started(scheduler);
  scheduler.done(0, 0, ESTALE, Moment(10));
  scheduler.done(1, 100, 0, Moment(10));
  scheduler.add(std::vector{scheduled(2, 1, 2)});
  EXPECT_EQ(started(scheduler, Moment(10)), Ids{2});
  const Moment wakes = scheduler.wakes_at().value();
  const std::optional<ReadStart> start = scheduler.next(wakes);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->id, 0u);
  EXPECT_TRUE(start->reopen);
}

TEST(Scheduler, reads_wrong_bytes_once_more_without_more_budget) {
  Scheduler scheduler({.budget_bytes = 100});
  scheduler.add(std::vector{scheduled(0, 1, 0), scheduled(1, 1, 1)});
  started(scheduler);
  scheduler.done(0, 100, 0, Moment(1));
  scheduler.again(0);
  const std::optional<ReadStart> start = scheduler.next(Moment(1));
  ASSERT_TRUE(start);
  EXPECT_EQ(start->id, 0u);
  EXPECT_EQ(start->into, 0u);
  EXPECT_TRUE(start->reopen);
  EXPECT_EQ(scheduler.budget_used(), 100u);
  EXPECT_THROW(scheduler.again(1), Error);
}

TEST(Scheduler, names_a_read_that_hangs_once) {
  Scheduler scheduler({});
  scheduler.add(std::vector{scheduled(0, 4, 0), scheduled(1, 5, 1)});
  started(scheduler, seconds(100));
  scheduler.done(1, 100, 0, seconds(101));
  EXPECT_TRUE(scheduler.hung(seconds(129)).empty());
  const std::vector<HungRead> hung = scheduler.hung(seconds(131));
  ASSERT_EQ(hung.size(), 1u);
  EXPECT_EQ(hung[0].request.target, 4);
  EXPECT_EQ(hung[0].lasts, Moment(seconds(31)));
  EXPECT_TRUE(scheduler.hung(seconds(200)).empty());
}

TEST(Scheduler, lets_go_of_requests_in_every_stage) {
  Scheduler scheduler({.budget_bytes = 200, .reads = 1});
  for (std::uint64_t id = 0; id < 4; ++id) {
    scheduler.add(std::vector{scheduled(id, 1, id)});
  }
  EXPECT_EQ(started(scheduler), Ids{0});
  EXPECT_THROW(scheduler.release(0), Error) << "its memory is being written";
  scheduler.release(3);  // waiting
  scheduler.done(0, 0, ESTALE, Moment(1));
  scheduler.release(0);  // delayed; 2 takes its room
  EXPECT_EQ(scheduler.budget_used(), 200u);
  scheduler.release(1);  // queued
  EXPECT_EQ(started(scheduler), Ids{2});
  scheduler.done(2, 100, 0, Moment(1));
  scheduler.release(2);
  EXPECT_EQ(scheduler.budget_used(), 0u);
  EXPECT_FALSE(scheduler.wakes_at());
  EXPECT_THROW(scheduler.release(2), Error);
}

/// What a run of random samples over targets that fail at random held to.
class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_(seed), planner_({.request_bytes = 64}) {
    layout_ = {{.begin = 0, .end = file_bytes, .stripe_bytes = 64, .targets = {0, 1, 2, 3, 4}}};
    make_samples();
  }

  /// Samples are taken in order; each request is released behind the last that wants it.
  void run() {
    const std::uint64_t budget = planner_.most_needed_bytes();
    Scheduler scheduler({.budget_bytes = budget, .reads = 8, .retry_for = seconds(3600)});
    scheduler.add(plan_.requests);
    std::set<std::uint64_t> whole;
    for (std::uint64_t position = 0; position < samples_.size(); ++position) {
      while (!std::ranges::all_of(needs_[position],
                                  [&](std::uint64_t id) { return whole.contains(id); })) {
        ASSERT_FALSE(scheduler.starved(position)) << position;
        step(scheduler, whole);
        ASSERT_LE(scheduler.budget_used(), budget);
        ASSERT_LT(++steps_, 100'000) << "it does not end";
      }
      for (const std::uint64_t id : needs_[position]) {
        if (last_[id] == position) {
          scheduler.release(id);
        }
      }
    }
    EXPECT_EQ(scheduler.budget_used(), 0u);
  }

 private:
  static constexpr std::uint64_t file_bytes = 20'000;

  void make_samples() {
    extents_.resize(60);
    for (Extents& extents : extents_) {
      for (std::uint64_t parts = 1 + random_() % 3; parts > 0; --parts) {
        const std::uint64_t offset = random_() % (file_bytes - 300);
        extents.push_back({.offset = offset, .bytes = 1 + random_() % 300});
      }
      samples_.push_back({.position = samples_.size(), .extents = extents});
    }
    plan_ = planner_.plan(samples_, [&](std::uint32_t) {
      return PlannedFile{.bytes = file_bytes, .layout = &layout_};
    });
    for (const SamplePiece& piece : plan_.pieces) {
      needs_[piece.position].insert(piece.request);
      last_[piece.request] = piece.position;
    }
  }

  void step(Scheduler& scheduler, std::set<std::uint64_t>& whole) {
    while (const std::optional<ReadStart> start = scheduler.next(now_)) {
      under_way_.push_back(*start);
    }
    if (under_way_.empty()) {
      const std::optional<Moment> wakes = scheduler.wakes_at();
      ASSERT_TRUE(wakes) << "nothing is under way, and nothing ever will be";
      ASSERT_GT(*wakes, now_);
      now_ = *wakes;
      return;
    }
    std::swap(under_way_[random_() % under_way_.size()], under_way_.back());
    const ReadStart ended = under_way_.back();
    under_way_.pop_back();
    now_ += milliseconds(1);
    constexpr std::array errors = {EIO, ESTALE, EINTR, ESHUTDOWN};
    const std::uint64_t fate = random_() % 10;
    const int error = fate < errors.size() ? errors[fate] : 0;
    const std::uint64_t bytes = fate == 9 ? 1 + random_() % ended.extent.bytes : ended.extent.bytes;
    const ReadVerdict verdict = scheduler.done(ended.id, error == 0 ? bytes : 0, error, now_);
    EXPECT_NE(verdict.kind, Kind::failed);
    if (verdict.kind == Kind::whole) {
      whole.insert(ended.id);
    }
  }

  std::mt19937_64 random_;
  FileLayout layout_;
  ReadPlanner planner_;
  std::vector<Extents> extents_;
  std::vector<WantedSample> samples_;
  ReadPlan plan_;
  std::map<std::uint64_t, std::set<std::uint64_t>> needs_;  // requests by position
  std::map<std::uint64_t, std::uint64_t> last_;             // position by request
  std::vector<ReadStart> under_way_;
  Moment now_{};
  int steps_ = 0;
};

TEST(Scheduler, never_blocks_within_the_bytes_that_a_planner_needs) {
  for (std::uint64_t seed = 0; seed < 300 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomRun(seed).run();
  }
}

/// As scheduled(), of a file.
Request of_file(std::uint64_t id, std::uint32_t file, std::uint64_t due) {
  Request request = scheduled(id, 1, due);
  request.extent.file = file;
  return request;
}

TEST(Scheduler, reads_of_a_held_file_wait_until_it_is_there) {
  Scheduler scheduler({});
  scheduler.hold(7);
  scheduler.add(std::vector{of_file(0, 7, 0), of_file(1, 3, 1), of_file(2, 7, 2)});
  EXPECT_EQ(started(scheduler), Ids{1});
  EXPECT_EQ(scheduler.held(), 2u);
  EXPECT_EQ(scheduler.budget_used(), 300u) << "they have their room";
  scheduler.resume(7);
  EXPECT_EQ(started(scheduler), (Ids{0, 2}));
  EXPECT_EQ(scheduler.held(), 0u);
}

TEST(Scheduler, a_held_read_keeps_its_room_from_later_ones) {
  Scheduler scheduler({.budget_bytes = 200});
  scheduler.hold(7);
  scheduler.add(std::vector{of_file(0, 7, 0), of_file(1, 3, 1), of_file(2, 3, 2)});
  EXPECT_EQ(started(scheduler), Ids{1}) << "the third has to wait though nothing else is under way";
  EXPECT_EQ(scheduler.done(1, 100, 0, Moment(1)).kind, Kind::whole);
  EXPECT_FALSE(scheduler.starved(0)) << "the file may come back";
  scheduler.release(1);
  EXPECT_EQ(started(scheduler, Moment(1)), Ids{2});
  scheduler.resume(7);
  EXPECT_EQ(started(scheduler, Moment(1)), Ids{0});
}

TEST(Scheduler, reads_of_a_file_that_does_not_come_back_end_whenever_they_find_room) {
  Scheduler scheduler({.budget_bytes = 100});
  scheduler.hold(7);
  scheduler.add(std::vector{of_file(0, 7, 0), of_file(1, 7, 1)});
  EXPECT_EQ(scheduler.end_held(7), Ids{0});
  EXPECT_EQ(scheduler.end_held(7), Ids{});
  scheduler.release(0);
  EXPECT_EQ(scheduler.end_held(7), Ids{1});
  scheduler.release(1);
  EXPECT_EQ(scheduler.budget_used(), 0u);
  EXPECT_EQ(scheduler.end_held(8), Ids{}) << "that was never held";
}

TEST(Scheduler, held_reads_may_be_released) {
  Scheduler scheduler({});
  scheduler.hold(7);
  scheduler.add(std::vector{of_file(0, 7, 0), of_file(1, 7, 1)});
  scheduler.release(0);
  scheduler.resume(7);
  EXPECT_EQ(started(scheduler), Ids{1});
  scheduler.resume(7);
}

}  // namespace
}  // namespace sprat::io
