// A long operation lets go of its context's token: others post, and other communicators move.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat {
namespace {

// A sum of this much takes a tenth of a second and more; one of a few elements, microseconds.
constexpr std::size_t long_count = std::size_t{64} << 20;

TEST(Slices, another_communicator_ends_while_a_long_operation_runs) {
  std::atomic<int> ranks_ahead = 0;
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    Communicator other = world.duplicate("other");
    std::vector<float> many(long_count, 1.0f), few(4, 1.0f);
    world.barrier();
    Work longest = world.all_reduce(elements(many));
    std::thread waiting([&] { longest.wait(); });  // drives it
    for (int round = 0; round < 3; ++round) {
      other.all_reduce(elements(few)).wait();
    }
    ranks_ahead += longest.done() ? 0 : 1;
    waiting.join();
    EXPECT_EQ(many[long_count - 1], 2.0f);
  });
  EXPECT_GT(ranks_ahead, 0);
}

}  // namespace
}  // namespace sprat
