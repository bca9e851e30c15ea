// Looking for silent ranks where the system has no thread for it, or a look fails.
#include "comm/survival/reachability.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <new>
#include <thread>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// While it lives no thread can be made: each would have a stack that no address space holds.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 60);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

/// Looks again and again, as who waits does, until nobody was found. A rank without addresses is
/// one that nobody answers for.
bool finds_that_nobody_answers(ReachabilityCheck& check) {
  std::atomic<int> unreachable = -1;
  for (const auto until = Clock::now() + 20s; unreachable < 0 && Clock::now() < until;) {
    check.start(
        {{3, {}}}, [&] { return unreachable >= 0; }, [&](int rank) { unreachable = rank; });
    std::this_thread::yield();
  }
  check.stop();
  return unreachable == 3;
}

TEST(ReachabilityCheck, looks_again_after_it_got_no_thread) {
  ReachabilityCheck check;
  {
    const NoThreads lack;
    EXPECT_ANY_THROW(std::thread([] {}).join()) << "there are threads, so nothing is tested";
    EXPECT_NO_THROW(check.start(
        {{3, {}}}, [] { return false; }, [](int) {}));
  }
  EXPECT_TRUE(finds_that_nobody_answers(check));
}

TEST(ReachabilityCheck, looks_again_after_a_look_has_failed) {
  ReachabilityCheck check;
  check.start(
      {{3, {}}}, []() -> bool { throw std::bad_alloc(); }, [](int) {});
  EXPECT_TRUE(finds_that_nobody_answers(check));
}

}  // namespace
}  // namespace sprat::comm
