// What a context does when its job fails.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "comm/context.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

std::vector<std::shared_ptr<Context>> join_two(const Config& config) {
  auto rendezvous = open_rendezvous_in_process(2);
  std::vector<std::shared_ptr<Context>> contexts(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Context::join(config, {.rendezvous = std::move(rendezvous[rank]), .keep = &contexts[rank]},
                    64);
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
  const auto contexts = join_two(config);
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

}  // namespace
}  // namespace sprat::comm
