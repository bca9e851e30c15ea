// A thread that posts takes in what another one sleeps for.
#include "collectives/engine/point_to_point.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "comm/context/context.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/collectives/engine/ranks_on_hosts.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;

/// The machine's, but once it is to be slow a thread that polls a wire is woken by a ring alone: as
/// if another thread had always taken in what came before this one had woken.
class SlowToWake final : public comm::WaitPolicy {
 public:
  struct Counts {
    std::atomic<bool> slow = false;
    std::atomic<int> polling = 0, overslept = 0;
  };
  explicit SlowToWake(Counts& counts) : counts_(counts) {}
  comm::Clock::time_point now() noexcept override { return policy_->now(); }
  comm::Clock::time_point recent() noexcept override { return policy_->recent(); }
  bool rest(int, comm::Awaited) noexcept override { return false; }
  void yield() noexcept override { policy_->yield(); }
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
             std::chrono::nanoseconds timeout) noexcept override {
    policy_->sleep(word, expected, timeout);
  }
  void wake(std::atomic<std::uint32_t>& word, int owner) noexcept override {
    policy_->wake(word, owner);
  }
  void poll(std::span<pollfd> descriptors, std::chrono::nanoseconds timeout) noexcept override {
    if (!counts_.slow) {
      return policy_->poll(descriptors, timeout);
    }
    ++counts_.polling;
    pollfd& rung = descriptors.front();
    rung.revents = 0;
    constexpr int rounds = 10;
    for (int round = 0; round < rounds && rung.revents == 0; ++round) {
      policy_->poll(descriptors.first(1), 999ms);
    }
    counts_.overslept += rung.revents == 0 ? 1 : 0;
    --counts_.polling;
  }
  void lock(std::mutex& mutex) noexcept override { policy_->lock(mutex); }
  void point() noexcept override { policy_->point(); }

 private:
  Counts& counts_;
  std::unique_ptr<comm::WaitPolicy> policy_ = comm::real_wait_policy();
};

/// Two ranks on two hosts, of which the first is slow to wake.
void run_pair(SlowToWake::Counts& counts, const std::function<void(Communicator&)>& body) {
  const auto prepare = [&](int rank, Config& config, comm::Environment& environment) {
    config.provider = "sockets";
    config.interface = "lo";
    if (rank == 0) {
      environment.wait_policy = std::make_unique<SlowToWake>(counts);
    }
  };
  run_on_hosts("a,b", 2, prepare, body);
}

TEST(PointToPoint, wakes_a_thread_whose_message_another_one_takes_in_as_it_posts) {
  SlowToWake::Counts counts;
  std::atomic<bool> sleeps = false, sent = false;
  std::atomic<int> posts = 0;
  run_pair(counts, [&](Communicator& world) {
    Communicator other = world.duplicate();
    world.barrier();
    std::vector<std::int32_t> data(1, 7);
    if (world.rank() == 1) {
      sleeps.wait(false);
      other.send(elements(data), 0, 1).wait();
      sent = true;
      sent.notify_all();
      posts.wait(0);  // until then this rank says nothing else
      for (int post = 0; post < posts; ++post) {
        world.recv(elements(data), 0, 2).wait();
        EXPECT_EQ(data[0], 8);
      }
      return;
    }
    counts.slow = true;
    std::thread waits([&] {
      std::vector<std::int32_t> got(1);
      other.recv(elements(got), 1, 1).wait();
      EXPECT_EQ(got[0], 7);
    });
    while (counts.polling == 0) {
      std::this_thread::yield();
    }
    sleeps = true;
    sleeps.notify_all();
    sent.wait(false);
    data[0] = 8;
    std::vector<Work> works;
    // The first one finds it, unless the kernel takes a moment to bring it.
    constexpr int most_posts = 1'000;
    do {
      works.push_back(world.send(elements(data), 1, 2));
      std::this_thread::yield();
    } while (counts.polling > 0 && std::ssize(works) < most_posts);
    waits.join();
    EXPECT_EQ(counts.overslept, 0) << works.size() << " posts";
    counts.slow = false;
    posts = static_cast<int>(works.size());
    posts.notify_all();
    for (Work& work : works) {
      work.wait();
    }
  });
}

}  // namespace
}  // namespace sprat::collectives
