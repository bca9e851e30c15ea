// When a call that takes long is reported, looked for and ended, by a clock of the test's own.
#include "collectives/engine/stall_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <optional>

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

comm::Clock::time_point at(comm::Clock::duration time) {
  return comm::Clock::time_point{} + 1h + time;
}

/// A call made at time 0 over a few ranks, and what its watch did.
struct FakeCall final : WatchedCall {
  Times times() const override {
    return {.posted = at(0s), .since = at(0s), .deadline = at(10s), .timeout = 10s};
  }
  std::string words() const override { return "the call"; }
  std::string name_of(int rank) const override { return "rank " + std::to_string(rank); }
  const WireFailure* wire_failure() const override { return failure ? &*failure : nullptr; }
  std::vector<int> late() const override { return late_ranks; }
  std::vector<int> silent() const override { return silent_ranks; }
  std::vector<int> awaited() const override { return awaited_ranks; }
  bool departed(int rank) const override { return rank == departed_rank; }
  bool speaks_for_host() const override { return true; }
  void show(const std::vector<int>& ranks, std::size_t late) override {
    shown = ranks;
    shown_late = late;
  }
  void report() override { ++reports; }
  void search() override { ++searches; }

  std::vector<int> late_ranks, silent_ranks, awaited_ranks;
  int departed_rank = -1;
  std::optional<WireFailure> failure;
  std::vector<int> shown;
  std::size_t shown_late = 0;
  int reports = 0, searches = 0;
};

/// Looks every 50 ms, first <= time < last.
void look_through(StallWatch& watch, FakeCall& call, comm::Clock::duration first,
                  comm::Clock::duration last) {
  for (auto time = first; time < last; time += 50ms) {
    watch.look(call, at(time));
  }
}

std::optional<Error> error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(StallWatch, leaves_a_call_alone_at_first) {
  StallWatch watch(0s);
  FakeCall call;
  call.late_ranks = {2};
  look_through(watch, call, 0ms, 100ms);
  EXPECT_TRUE(call.shown.empty());
}

TEST(StallWatch, shows_the_late_before_the_others_that_are_waited_for) {
  StallWatch watch(0s);
  FakeCall call;
  call.late_ranks = {2, 4};
  call.awaited_ranks = {1, 2};
  watch.look(call, at(100ms));
  EXPECT_THAT(call.shown, ElementsAre(2, 4, 1));
  EXPECT_EQ(call.shown_late, 2u);
}

TEST(StallWatch, reports_soon_and_then_now_and_then) {
  StallWatch watch(0s);
  FakeCall call;
  look_through(watch, call, 0s, 5s);
  EXPECT_EQ(call.reports, 1);
  look_through(watch, call, 5s, 6s);
  EXPECT_EQ(call.reports, 2);
}

TEST(StallWatch, searches_ever_more_seldom) {
  StallWatch watch(0s);
  FakeCall call;
  look_through(watch, call, 0s, 9s);
  EXPECT_EQ(call.searches, 1);
  watch.moved();
  look_through(watch, call, 9s, 10s);
  EXPECT_EQ(call.searches, 1) << "what moves is not stuck";
}

TEST(StallWatch, names_the_silent_before_the_late_at_the_deadline) {
  StallWatch watch(0s);
  FakeCall call;
  call.late_ranks = {1, 3};
  call.silent_ranks = {3};
  look_through(watch, call, 0s, 10'800ms);
  EXPECT_GE(call.reports, 2) << "the deadline is a reason to ask again";
  const auto error = error_of([&] { look_through(watch, call, 10'800ms, 11s); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::timeout);
  EXPECT_EQ(error->rank(), 3);
  EXPECT_THAT(error->what(),
              HasSubstr("no end after 10 s: no answer from rank 3; not called by rank 1;"));
}

TEST(StallWatch, names_whom_it_waits_for_if_all_have_called) {
  StallWatch watch(0s);
  FakeCall call;
  call.awaited_ranks = {5};
  const auto error = error_of([&] { look_through(watch, call, 0s, 11s); });
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->what(), HasSubstr("every rank has called it; still waiting for rank 5"));
}

TEST(StallWatch, ends_a_call_that_waits_for_one_who_has_left) {
  StallWatch watch(0s);
  FakeCall call;
  call.awaited_ranks = {1, 2};
  call.departed_rank = 2;
  look_through(watch, call, 0s, 1s);
  const auto error = error_of([&] { look_through(watch, call, 1s, 2s); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::lost_peer);
  EXPECT_EQ(error->rank(), 2);
}

TEST(StallWatch, gives_a_wire_time_to_be_explained) {
  StallWatch watch(0s);
  FakeCall call;
  call.failure = {.since = at(1s), .world_rank = 4, .error = ECONNRESET, .sends = true};
  watch.look(call, at(3s));
  const auto error = error_of([&] { watch.look(call, at(3'001ms)); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->rank(), 4);
  EXPECT_THAT(error->what(), HasSubstr("a message to rank 4 could not be delivered"));
}

TEST(StallWatch, keeps_the_first_reason_why_memory_could_not_be_had) {
  StallWatch watch(0s);
  const FakeCall call;
  EXPECT_FALSE(watch.misses(call, {.world_rank = 1, .error = EMFILE}, at(1s)));
  EXPECT_FALSE(watch.misses(call, {.world_rank = 1, .error = ESRCH}, at(3s)));
  const auto error = watch.misses(call, {.world_rank = 1, .error = ESRCH}, at(3'001ms));
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->what(), HasSubstr("see ulimit -n"));
  watch.moved();
  EXPECT_FALSE(watch.misses(call, {.world_rank = 1, .error = ESRCH}, at(9s)));
}

TEST(StallWatch, begins_anew_with_the_next_call) {
  StallWatch watch(0s);
  FakeCall call;
  watch.report(call, at(1s));
  EXPECT_TRUE(watch.reported());
  watch.end(call, at(2s));
  EXPECT_FALSE(watch.reported());
}

}  // namespace
}  // namespace sprat::collectives
