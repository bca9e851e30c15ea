// Ranks as threads where memory ends while they are started.
#include "comm/base/thread.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>

#include "sprat/communicator.hpp"
#include "tests/unit/comm/transports/shm/out_of_memory.hpp"

namespace sprat {
namespace {

constexpr int ranks = 4;

/// How many allocations of this thread it takes until all ranks are started, if the one behind
/// `given` fails. -1: none does.
int allocations_until_all_are_started(int given) {
  std::atomic<int> count = 0;
  const comm::FailingAllocation failing(given);
  // Ranks have started once one of them has joined the others.
  run_virtual_ranks(ranks, Config{}, [&](Communicator&) { count = failing.count(); });
  return count;
}

/// The last allocations until then are of the threads, each of which takes one and has its purpose
/// in words.
TEST(Threads, of_ranks_end_with_a_reason_if_memory_does_before_all_are_started) {
  allocations_until_all_are_started(-1);  // takes what is made once in a process
  const int all = allocations_until_all_are_started(-1);
  int named = 0;
  for (int given = all - 2 * ranks; given < all; ++given) {
    try {
      allocations_until_all_are_started(given);
      ADD_FAILURE() << "allocation " << given << " of " << all << " did not fail";
    } catch (const std::bad_alloc&) {
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_THAT(error.what(), testing::HasSubstr("ulimit -v"));
      named += std::string(error.what()).starts_with("cannot start a thread for rank ") ? 1 : 0;
    }
  }
  EXPECT_GT(named, 0);
}

}  // namespace
}  // namespace sprat
