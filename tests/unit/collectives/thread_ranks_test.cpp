// Ranks that share a process although nobody started them together: replicas as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"
#include "tests/unit/comm/bootstrap/map_store.hpp"

namespace sprat {
namespace {

using namespace std::chrono_literals;

/// Each joins through a store, and owns its communicator alone.
void run_threads(int ranks, const std::function<void(std::optional<Communicator>&)>& body) {
  comm::SharedMap map;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      comm::MapStore store(map);
      Config config;
      config.rank = rank;
      config.size = ranks;
      config.timeout = 20s;
      std::optional<Communicator> world(Communicator::join(config, store));
      body(world);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ThreadRanks, that_leave_are_an_error_for_the_others) {
  std::latch left(1);
  run_threads(3, [&](std::optional<Communicator>& world) {
    std::vector<float> data(1'000, 1.0f);
    world->all_reduce(elements(data)).wait();
    EXPECT_EQ(data[999], 3.0f);
    if (world->rank() == 2) {
      world.reset();
      left.count_down();
      return;
    }
    left.wait();
    try {
      world->all_reduce(elements(data)).wait();
      ADD_FAILURE() << "rank " << world->rank() << " has summed without rank 2";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("rank 2")) << error.what();
    }
  });
}

TEST(ThreadRanks, read_each_others_private_and_shared_memory) {
  run_threads(2, [&](std::optional<Communicator>& world) {
    for (const std::size_t count : {3u, 5'000u, 3'000'000u}) {
      std::vector<float> data(count, 1.0f);
      world->all_reduce(elements(data)).wait();
      EXPECT_EQ(data[count - 1], 2.0f);
      Memory memory(count * sizeof(float));
      auto* shared = static_cast<float*>(memory.data());
      std::fill_n(shared, count, 2.0f);
      world->all_reduce({shared, count, DType::f32}).wait();
      EXPECT_EQ(shared[count - 1], 4.0f);
    }
    world->barrier();
  });
}

}  // namespace
}  // namespace sprat
