// What a context does when its job fails.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
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

/// A file system that hangs keeps one rank's record, and nobody's word of the failure.
TEST(Failure, is_told_before_its_record_is_written) {
  Config config;
  config.flight_recorder = "a folder that hangs";
  std::function<void()> nothing;
  const auto contexts = join_two(config, nothing);
  std::promise<void> file_system_moves;
  const auto moves = file_system_moves.get_future().share();
  contexts[0]->on_failure([moves] { moves.wait(); });
  std::thread failing([&] { contexts[0]->fail(Error(ErrorCode::aborted, "enough", 0)); });
  const auto patience = Clock::now() + 20s;
  while (contexts[1]->failure() == nullptr && Clock::now() < patience) {
    std::this_thread::yield();
  }
  const bool told = contexts[1]->failure() != nullptr;
  file_system_moves.set_value();
  failing.join();
  EXPECT_TRUE(told);
}

/// Whoever sees the failure may write to its buffers again: by then a peer that reads there must be
/// able to see that what it has read is not good.
TEST(Failure, shows_to_peers_before_callers_hear_of_it) {
  std::function<void()> at_point;
  const auto contexts = join_two(Config{}, at_point);
  bool marked_first = false;
  at_point = [&] {
    marked_first |= contexts[1]->peer_failed(0) && contexts[0]->failure() == nullptr;
  };
  contexts[0]->fail(Error(ErrorCode::aborted, "enough", 0));
  EXPECT_TRUE(marked_first);
  EXPECT_TRUE(contexts[1]->peer_failed(0));
}

}  // namespace
}  // namespace sprat::comm
