// What a context believes of what its peers say.
#include "comm/context/context.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace sprat::comm {
namespace {

/// Two ranks of this process.
std::vector<std::shared_ptr<Context>> join_pair(bool as_processes) {
  auto rendezvous = open_rendezvous_in_process(2);
  std::vector<std::shared_ptr<Context>> contexts(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      contexts[rank] = Context::join(Config(),
                                     {.rendezvous = std::move(rendezvous[rank]),
                                      .keep = as_processes ? nullptr : &contexts[rank]},
                                     64);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return contexts;
}

TEST(Context, follows_no_pointer_of_another_process) {
  for (const bool processes : {false, true}) {
    const auto contexts = join_pair(processes);
    const int value = 1;
    const MemoryRef pointer{MemoryRef::Kind::address, -1, 0, 0,
                            reinterpret_cast<std::uintptr_t>(&value)};
    const MemoryRef nonsense{static_cast<MemoryRef::Kind>(17), 0, 0, 0, 0};
    const auto token = contexts[0]->take_token();
    EXPECT_EQ(contexts[0]->view(1, pointer).data == nullptr, processes);
    EXPECT_EQ(contexts[0]->view(1, nonsense).data, nullptr);
  }
}

}  // namespace
}  // namespace sprat::comm
