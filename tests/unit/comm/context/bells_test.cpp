// Sleeping on a bell, and being woken.
#include "comm/context/bells.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/comm/context/patient_wait_policy.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

/// Two ranks of one host, of which the first may poll.
struct Host {
  explicit Host(const std::vector<int>& descriptors = {}) {
    for (Bells* rank : {&sleeps, &rings}) {
      rank->connect({{&headers[0], getpid()}, {&headers[1], getpid()}}, false);
    }
    sleeps.allow_polling(descriptors);
  }
  void await_poll() const {
    while (headers[0].polling == 0) {
      std::this_thread::yield();
    }
  }
  void ring() {
    constexpr std::array sleeper = {0};
    rings.ring(sleeper);
  }
  PatientWaitPolicy policy;
  std::array<ControlHeader, 2> headers{};
  Bells sleeps{policy, headers[0], 0}, rings{policy, headers[1], 1};
};

// The policy counts the sleeps that nobody ended; how long they may last is its own affair.
constexpr auto no_matter = 1ms;

TEST(Bells, end_a_poll_as_they_end_a_sleep) {
  Host host;
  ASSERT_TRUE(host.sleeps.can_poll());
  for (int round = 0; round < 50; ++round) {
    std::thread peer([&] {
      host.await_poll();
      host.ring();
    });
    Bells::Sleeper thread(host.sleeps);
    thread.listen();
    thread.poll(no_matter);
    peer.join();
  }
  EXPECT_EQ(host.policy.overslept, 0);
}

TEST(Bells, that_rang_before_the_poll_began_end_it_at_once) {
  Host host;
  Bells::Sleeper thread(host.sleeps);
  thread.listen();
  host.ring();
  thread.poll(no_matter);
  EXPECT_EQ(host.policy.overslept, 0);
}

TEST(Bells, let_a_descriptor_end_a_poll) {
  const int event = eventfd(1, EFD_CLOEXEC);
  Host host({event});
  Bells::Sleeper thread(host.sleeps);
  thread.listen();
  thread.poll(no_matter);
  EXPECT_EQ(host.policy.overslept, 0);
  close(event);
}

/// One who fails wakes its own threads.
TEST(Bells, end_a_poll_of_their_own_rank) {
  Host host;
  std::thread failing([&] {
    host.await_poll();
    host.sleeps.wake_self();
  });
  Bells::Sleeper thread(host.sleeps);
  thread.listen();
  thread.poll(no_matter);
  EXPECT_EQ(host.policy.overslept, 0);
  failing.join();
}

/// The byte that ended one poll does not end the next.
TEST(Bells, are_silent_again_once_they_were_heard) {
  const auto policy = real_wait_policy();
  ControlHeader header{};
  Bells bells(*policy, header, 0);
  bells.connect({{&header, getpid()}}, false);
  bells.allow_polling({});
  Bells::Sleeper thread(bells);
  thread.listen();
  std::thread waker([&] {
    while (header.polling == 0) {
      std::this_thread::yield();
    }
    bells.wake_self();
  });
  thread.poll(900ms);
  waker.join();
  for (int round = 0; round < 2; ++round) {  // the byte may come late, once
    thread.listen();
    const auto begin = Clock::now();
    thread.poll(50ms);
    if (round == 1) {
      EXPECT_GE(Clock::now() - begin, 50ms);
    }
  }
}

/// Peers write to the page that says who polls.
TEST(Bells, need_no_pipe_where_a_peer_says_that_one_polls) {
  PatientWaitPolicy policy;
  ControlHeader header{};
  Bells bells(policy, header, 0);
  bells.connect({{&header, getpid()}}, false);
  header.polling = 1;
  bells.wake_self();
  EXPECT_EQ(header.bell, 1u);
}

/// By the time a peer rings, what it knows of the pipe may mean another file of that process, or of
/// another one.
TEST(Bells, write_to_nothing_but_the_pipe) {
  std::array<int, 2> other_pipe{};
  ASSERT_EQ(pipe2(other_pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (const int other : {other_pipe[0], event}) {
    Host host;
    ASSERT_TRUE(host.sleeps.can_poll());
    host.headers[0].pipe_descriptor = other;
    if (other == event) {
      struct stat status {};
      ASSERT_EQ(fstat(event, &status), 0);
      host.headers[0].pipe_inode = status.st_ino;
    }
    host.headers[0].sleepers = 1;
    host.headers[0].polling = 1;
    host.ring();
    std::uint64_t read_back = 0;
    EXPECT_LT(read(other, &read_back, sizeof read_back), 0) << "something was written";
    EXPECT_FALSE(host.sleeps.can_poll()) << "its peer cannot end a poll";
    host.headers[0].sleepers = 0;
  }
  for (const int one : {other_pipe[0], other_pipe[1], event}) {
    close(one);
  }
}

/// No descriptor is left to this process while this lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(Bells, do_without_polling_where_no_descriptors_are_left) {
  {
    const NoDescriptors now;
    Host host;
    EXPECT_FALSE(host.sleeps.can_poll()) << "it has no pipe";
  }
  Host host;
  ASSERT_TRUE(host.sleeps.can_poll());
  host.headers[0].sleepers = 1;
  host.headers[0].polling = 1;
  {
    const NoDescriptors now;
    host.ring();
  }
  EXPECT_FALSE(host.sleeps.can_poll()) << "its peer cannot open its pipe";
  EXPECT_EQ(host.headers[0].bell, 1u);
  host.headers[0].sleepers = 0;
}

/// Work appears, the bell is rung, and the sleeper looks: whatever the order, it sees the work.
TEST(Bells, miss_nothing) {
  Host host;
  constexpr int rounds = 20'000;
  std::atomic<int> work = 0, seen = 0;
  std::thread peer([&] {
    for (int round = 1; round <= rounds; ++round) {
      work.store(round, std::memory_order_relaxed);
      host.ring();
      while (seen.load() < round) {
        std::this_thread::yield();
      }
    }
  });
  for (int round = 1; round <= rounds; ++round) {
    Bells::Sleeper thread(host.sleeps);
    for (;;) {
      thread.listen();
      if (work.load(std::memory_order_relaxed) == round) {
        break;
      }
      thread.poll(no_matter);
    }
    seen = round;
  }
  peer.join();
  EXPECT_EQ(host.policy.overslept, 0);
}

}  // namespace
}  // namespace sprat::comm
