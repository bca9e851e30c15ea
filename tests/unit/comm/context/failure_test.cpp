// What a context does when its job fails.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/context/context.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

/// The machine's wait policy, which tells when a context is between two touches of what ranks
/// share.
class WatchedWaitPolicy final : public WaitPolicy {
 public:
  explicit WatchedWaitPolicy(std::function<void()>& at_point) : at_point_(at_point) {}
  Clock::time_point now() noexcept override { return wait_policy_->now(); }
  Clock::time_point recent() noexcept override { return wait_policy_->recent(); }
  bool rest(int idle_rounds, Awaited awaited) noexcept override {
    return wait_policy_->rest(idle_rounds, awaited);
  }
  void yield() noexcept override { wait_policy_->yield(); }
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
             std::chrono::nanoseconds timeout) noexcept override {
    wait_policy_->sleep(word, expected, timeout);
  }
  void wake(std::atomic<std::uint32_t>& word, int owner) noexcept override {
    wait_policy_->wake(word, owner);
  }
  void poll(std::span<pollfd> descriptors, std::chrono::nanoseconds timeout) noexcept override {
    wait_policy_->poll(descriptors, timeout);
  }
  void lock(std::mutex& mutex) noexcept override { wait_policy_->lock(mutex); }
  void point() noexcept override {
    if (at_point_) {
      at_point_();
    }
  }

 private:
  std::function<void()>& at_point_;
  std::unique_ptr<WaitPolicy> wait_policy_ = real_wait_policy();
};

std::vector<std::shared_ptr<Context>> join_two(const Config& config,
                                               std::function<void()>& at_point) {
  auto rendezvous = open_rendezvous_in_process(2);
  std::vector<std::shared_ptr<Context>> contexts(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Environment environment{.rendezvous = std::move(rendezvous[rank]), .keep = &contexts[rank]};
      if (rank == 0) {
        environment.wait_policy = std::make_unique<WatchedWaitPolicy>(at_point);
      }
      Context::join(config, std::move(environment), 64);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return contexts;
}

/// A file system that hangs keeps one rank's record, and nobody's word of the failure. `folder` is
/// that of the record, which a thread of its own writes if there is one.
void expect_told_before_its_record(const std::string& folder, bool of_job) {
  Config config;
  config.flight_recorder = folder;
  std::function<void()> nothing;
  const auto contexts = join_two(config, nothing);
  const auto open = [&](std::size_t rank) {
    return contexts[rank]->open_scope(
        {.communicator = 5, .domain = 5, .name = "five", .world_ranks = {0, 1}});
  };
  const auto here = open(0), there = open(1);
  std::promise<void> file_system_moves;
  const auto moves = file_system_moves.get_future().share();
  contexts[0]->on_failure([moves] { moves.wait(); });
  std::thread failing([&] {
    const Error error(ErrorCode::aborted, "enough", 0);
    of_job ? contexts[0]->fail(error) : contexts[0]->fail(*here, error);
  });
  const auto heard = [&] { return of_job ? contexts[1]->failure() : there->first(); };
  const auto patience = Clock::now() + 20s;
  while (heard() == nullptr && Clock::now() < patience) {
    std::this_thread::yield();
  }
  const bool told = heard() != nullptr;
  file_system_moves.set_value();
  failing.join();
  EXPECT_TRUE(told) << (of_job ? "of the job" : "of a communicator") << ", folder \"" << folder
                    << '"';
}

TEST(Failure, is_told_before_its_record_is_written) {
  for (const char* folder : {"", "a folder that hangs"}) {
    expect_told_before_its_record(folder, true);
  }
}

TEST(Failure, of_one_communicator_is_told_before_its_record_is_written) {
  for (const char* folder : {"", "a folder that hangs"}) {
    expect_told_before_its_record(folder, false);
  }
}

/// Whoever sees the failure may write to its buffers again: by then a peer that reads there must be
/// able to see that what it has read is not good.
TEST(Failure, shows_to_peers_before_callers_hear_of_it) {
  for (const bool alone : {true, false}) {
    std::function<void()> at_point;
    const auto contexts = join_two(Config{}, at_point);
    std::atomic<std::uint32_t> shown = 0;
    const auto scope = contexts[0]->open_scope(
        {.communicator = 5, .domain = 5, .name = "five", .world_ranks = {0, 1}, .shown = &shown});
    bool marked_first = false;
    at_point = [&] { marked_first |= shown.load() != 0 && scope->first() == nullptr; };
    const Error error(ErrorCode::aborted, "enough", 0);
    alone ? contexts[0]->fail(*scope, error) : contexts[0]->fail(error);
    EXPECT_TRUE(marked_first);
    EXPECT_TRUE(FailureState::is_shown(shown));
    EXPECT_EQ(contexts[0]->failure() == nullptr, alone);
  }
}

struct TwoContexts {
  std::function<void()> nothing;
  std::vector<std::shared_ptr<Context>> contexts = join_two(Config{}, nothing);

  std::shared_ptr<const FailureScope> open(std::size_t rank, std::uint64_t communicator,
                                           std::uint64_t domain) {
    return contexts[rank]->open_scope(
        {.communicator = communicator, .domain = domain, .name = "some", .world_ranks = {0, 1}});
  }
};

void expect_told(const FailureScope& scope, const char* what) {
  const auto patience = Clock::now() + 20s;
  while (scope.first() == nullptr && Clock::now() < patience) {
    std::this_thread::yield();
  }
  ASSERT_NE(scope.first(), nullptr);
  EXPECT_STREQ(scope.first()->what(), what);
}

TEST(Failure, of_one_communicator_reaches_its_other_rank_and_nothing_else) {
  TwoContexts two;
  const auto here = two.open(0, 5, 5), other_here = two.open(0, 6, 6);
  const auto there = two.open(1, 5, 5), other_there = two.open(1, 6, 6);
  two.contexts[0]->fail(*here, Error(ErrorCode::timeout, "nobody came", 1));
  expect_told(*there, "nobody came");
  EXPECT_EQ(there->first()->code(), ErrorCode::timeout);
  EXPECT_EQ(there->first()->rank(), 1);
  EXPECT_EQ(other_here->first(), nullptr);
  EXPECT_EQ(other_there->first(), nullptr);
  EXPECT_EQ(two.contexts[0]->failure(), nullptr);
  EXPECT_EQ(two.contexts[1]->failure(), nullptr);
}

TEST(Failure, of_a_domain_reaches_all_of_its_communicators) {
  TwoContexts two;
  const auto here = two.open(0, 5, 5);
  const auto there = two.open(1, 7, 5), other_there = two.open(1, 6, 6);
  two.contexts[0]->fail(*here, Error(ErrorCode::aborted, "enough", 0));
  expect_told(*there, "enough");
  EXPECT_EQ(other_there->first(), nullptr);
}

/// A rank may hear of it before it has made the communicator, whose other ranks were faster.
TEST(Failure, waits_for_the_communicator_that_it_is_about) {
  TwoContexts two;
  const auto here = two.open(0, 5, 5), probe = two.open(1, 8, 8);
  const auto probe_here = two.open(0, 8, 8);
  two.contexts[0]->fail(*here, Error(ErrorCode::aborted, "enough", 0));
  two.contexts[0]->fail(*probe_here, Error(ErrorCode::aborted, "word has come", 0));
  expect_told(*probe, "word has come");  // and so has what was told before it
  expect_told(*two.open(1, 5, 5), "enough");
}

TEST(Failure, of_the_job_reaches_all_communicators_those_to_come_as_well) {
  TwoContexts two;
  const auto here = two.open(0, 5, 5), there = two.open(1, 6, 6);
  two.contexts[0]->fail(Error(ErrorCode::aborted, "enough", 0));
  expect_told(*here, "enough");
  expect_told(*there, "enough");
  expect_told(*two.open(1, 9, 9), "enough");
}

TEST(Failure, of_a_communicator_is_not_shown_once_that_is_closed) {
  TwoContexts two;
  std::atomic<std::uint32_t> shown = 0;
  const auto scope = two.contexts[0]->open_scope(
      {.communicator = 5, .domain = 5, .name = "five", .world_ranks = {0}, .shown = &shown});
  two.contexts[0]->close_scope(*scope);
  two.contexts[0]->fail(*scope, Error(ErrorCode::aborted, "enough", 0));
  two.contexts[0]->fail(Error(ErrorCode::aborted, "enough", 0));
  EXPECT_EQ(shown.load(), 0u);
}

/// Messages of a failed communicator may still be under way: the lowest bits of its number are in
/// their tags.
/// What a rank alone knows, without peers.
struct Alone {
  std::unique_ptr<WaitPolicy> wait_policy = real_wait_policy();
  ControlHeader header{};
  Bells bells{*wait_policy, header, 0};
  FailureState state{*wait_policy, bells, {.size = 4, .record_may_hang = false}};
};

TEST(Failure, keeps_one_verdict_on_lateness_for_each_communicator) {
  Alone alone;
  alone.state.note_lateness(7, 1, {{2}, {}});
  alone.state.note_lateness(8, 5, {{3}, {3}});
  EXPECT_EQ(alone.state.lateness(7, 1), (Lateness{{2}, {}}));
  EXPECT_EQ(alone.state.lateness(8, 5), (Lateness{{3}, {3}}));
  EXPECT_EQ(alone.state.lateness(7, 2), Lateness()) << "that is about another call";
  alone.state.forget_lateness(7);
  EXPECT_EQ(alone.state.lateness(7, 1), Lateness());
}

TEST(Failure, tells_watchers_of_each_rank_that_ends_or_has) {
  Alone alone;
  std::vector<int> early, late;
  alone.state.note_lost(3);
  {
    const auto watch = alone.state.watch_ends([&](int rank) { early.push_back(rank); });
    alone.state.note_departed(1);
    const auto other = alone.state.watch_ends([&](int rank) { late.push_back(rank); });
    alone.state.note_lost(2);
  }
  alone.state.note_departed(0);
  EXPECT_EQ(early, (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(late, (std::vector<int>{1, 3, 2}));
}

TEST(Failure, keeps_the_numbers_of_failed_communicators_from_others) {
  TwoContexts two;
  const std::uint64_t alike = 5 + (std::uint64_t{1} << Context::communicator_bits);
  const auto is_taken = [&] {
    const auto token = two.contexts[0]->take_token();
    return two.contexts[0]->is_like_another(alike);
  };
  const auto scope = two.open(0, 5, 5);
  EXPECT_FALSE(is_taken());  // no driver of that number lives here
  two.contexts[0]->fail(*scope, Error(ErrorCode::aborted, "enough", 0));
  two.contexts[0]->close_scope(*scope);
  EXPECT_TRUE(is_taken());
}

}  // namespace
}  // namespace sprat::comm
