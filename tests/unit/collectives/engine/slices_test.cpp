// A long operation lets go of its context's token: others post, and other communicators move.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
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

// Bulk work is done without the token, so a call is queued at once although a large one runs. The
// bound is no promise: a thread that posts may lose its core.
TEST(Slices, others_post_at_once_while_a_long_operation_runs) {
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    Communicator other = world.duplicate("other");
    std::vector<float> many(long_count, 1.0f), few(4, 1.0f);
    world.barrier();
    Work longest = world.all_reduce(elements(many));
    std::thread waiting([&] { longest.wait(); });  // drives it
    std::vector<std::chrono::nanoseconds> posts;
    for (int round = 0; round < 20; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      Work work = other.all_reduce(elements(few));
      posts.push_back(std::chrono::steady_clock::now() - begin);
      work.wait();
    }
    waiting.join();
    std::ranges::sort(posts);
    EXPECT_LT(posts[posts.size() / 2], std::chrono::milliseconds(5)) << "the median";
    EXPECT_EQ(many[0], 2.0f);
    EXPECT_EQ(many[long_count - 1], 2.0f);
  });
}

// An input that the output overwrites is copied first. Who posts, and all who want the token, wait
// for a slice of that, and not for as long as a copy of it takes.
TEST(Slices, a_call_is_posted_before_its_whole_input_has_been_copied) {
  Config config;
  config.host = "a,b";
  run_virtual_ranks(2, config, [&](Communicator& world) {
    constexpr std::size_t count = long_count / 4;
    std::vector<int> many(count);
    std::iota(many.begin(), many.end(), static_cast<int>(count) * world.rank());
    world.barrier();
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<int> copy = many;
    const auto copied = std::chrono::steady_clock::now();
    Work exchange = world.all_to_all(elements(std::as_const(many)), elements(many));
    const auto posted = std::chrono::steady_clock::now();
    exchange.wait();
    EXPECT_LT(posted - copied, (copied - begin) / 2);
    const std::size_t half = count / 2;
    for (std::size_t i = 0; i < count; i += half / 4) {
      const std::size_t sender = i / half, block = half * static_cast<std::size_t>(world.rank());
      ASSERT_EQ(many[i], static_cast<int>(sender * count + block + i % half));
    }
  });
}

}  // namespace
}  // namespace sprat
