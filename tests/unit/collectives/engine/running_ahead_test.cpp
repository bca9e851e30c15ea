// A rank that needs nothing of its peers in a short call runs ahead of them, so far and no farther.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/engine/control_block.hpp"
#include "sprat/communicator.hpp"

namespace sprat {
namespace {

using collectives::ControlBlock;
using collectives::Slot;

constexpr Options blocking{.timeout = {}, .blocking = true};

/// Blocking or not: both ways through the engine.
class RunningAhead : public testing::TestWithParam<bool> {
 protected:
  static void broadcast(Communicator& world, std::span<std::int32_t> data, int root) {
    if (GetParam()) {
      world.broadcast(elements(data), root, blocking);
    } else {
      world.broadcast(elements(data), root).wait();
    }
  }
};

// Rank 1 calls only once the root is through, or nobody would ever be.
TEST_P(RunningAhead, a_root_is_through_before_others_call) {
  for (const std::size_t count : {std::size_t{1}, Slot::inline_bytes / sizeof(std::int32_t)}) {
    std::atomic<bool> through = false;
    run_virtual_ranks(3, Config{}, [&](Communicator& world) {
      std::vector<std::int32_t> data(count, world.rank() == 0 ? 7 : -1);
      world.barrier();
      if (world.rank() != 0) {
        through.wait(false);
      }
      broadcast(world, data, 0);
      if (world.rank() == 0) {
        through = true;
        through.notify_all();
      }
      EXPECT_EQ(data, std::vector<std::int32_t>(count, 7));
    });
  }
}

// A contributor to a reduce that has another root is through at once, too.
TEST_P(RunningAhead, a_contributor_is_through_before_the_root_calls) {
  std::atomic<int> through = 0;
  run_virtual_ranks(3, Config{}, [&](Communicator& world) {
    std::vector<std::int32_t> data(4, world.rank() + 1), sum(4);
    world.barrier();
    if (world.rank() == 1) {
      while (through < 2) {
        std::this_thread::yield();
      }
    }
    world.reduce(elements(data), elements(sum), 1, ReduceOp::sum, {.blocking = GetParam()}).wait();
    ++through;
    if (world.rank() == 1) {
      EXPECT_EQ(sum, std::vector<std::int32_t>(4, 6));
    }
  });
}

// Were it to go farther, the second rank would receive later calls' data.
TEST_P(RunningAhead, a_root_stops_where_peers_may_still_read) {
  struct Case {
    std::size_t count;
    std::uint64_t depth;
  };
  for (const Case& one :
       {Case{1, ControlBlock::slots},
        Case{Slot::short_bytes / sizeof(std::int32_t) + 1, ControlBlock::rooms}}) {
    constexpr std::int32_t calls = 100;
    std::atomic<std::int32_t> made = 0;
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      world.barrier();
      if (world.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_LE(made, static_cast<std::int32_t>(one.depth));
      }
      for (std::int32_t call = 0; call < calls; ++call) {
        std::vector<std::int32_t> data(one.count, world.rank() == 0 ? call : -1);
        broadcast(world, data, 0);
        made += world.rank() == 0 ? 1 : 0;
        ASSERT_EQ(data, std::vector<std::int32_t>(one.count, call));
      }
    });
    EXPECT_EQ(made, calls);
  }
}

// Short and long ones, roots in turn, calls of all among them: slots and rooms come round many
// times.
TEST_P(RunningAhead, every_call_brings_its_own_data) {
  run_virtual_ranks(4, Config{}, [&](Communicator& world) {
    for (std::int32_t call = 0; call < 2'000; ++call) {
      const int root = call % 7 % world.size();
      const std::size_t count = call % 3 == 0 ? 100 : 2;
      std::vector<std::int32_t> data(count, world.rank() == root ? call : -1);
      broadcast(world, data, root);
      ASSERT_EQ(data, std::vector<std::int32_t>(count, call));
      if (call % 31 == 0) {
        std::int32_t one = 1;
        world.all_reduce(elements(std::span(&one, 1)), ReduceOp::sum, blocking);
        ASSERT_EQ(one, world.size());
      }
    }
  });
}

// It goes on as soon as they have, though it sleeps; and a peer that never comes is named.
TEST(RunningAheadOfTheLost, names_who_is_behind_at_the_deadline) {
  std::string message;
  try {
    Config config;
    config.timeout = std::chrono::milliseconds(300);
    run_virtual_ranks(2, config, [&](Communicator& world) {
      std::int32_t x = 1;
      world.barrier();
      if (world.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        return;
      }
      for (std::uint64_t call = 0; call < 2 * ControlBlock::slots; ++call) {
        world.broadcast(elements(std::span(&x, 1)), 0).wait();
      }
    });
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Calls, RunningAhead, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "blocking" : "queued");
});

}  // namespace
}  // namespace sprat
