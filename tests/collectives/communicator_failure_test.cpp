// What a communicator does when ranks disagree, are late, give up or make wrong calls.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat {
namespace {

using namespace std::chrono_literals;

Config quick() {
  Config config;
  config.timeout = 20s;
  return config;
}

std::string failure_of(int ranks, const std::string& hosts,
                       const std::function<void(Communicator&)>& body) {
  Config config = quick();
  config.host = hosts;
  std::vector<std::string> messages(ranks);
  try {
    run_virtual_ranks(ranks, config, [&](Communicator& world) {
      try {
        body(world);
      } catch (const Error& error) {
        messages[world.rank()] = std::string(name(error.code())) + ": " + error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  std::string all;
  for (const std::string& message : messages) {
    EXPECT_FALSE(message.empty()) << "a rank did not fail";
    all += message + "\n";
  }
  return all;
}

void expect_everywhere(const std::string& messages, int ranks, const std::string& part) {
  int found = 0;
  for (std::size_t at = messages.find(part); at != std::string::npos;
       at = messages.find(part, at + 1)) {
    ++found;
  }
  EXPECT_GE(found, ranks) << "\"" << part << "\" is missing somewhere in:\n" << messages;
}

TEST(Mismatch, counts_are_named_on_every_rank) {
  for (const char* hosts : {"", "a,a,b"}) {
    const auto messages = failure_of(3, hosts, [](Communicator& world) {
      std::vector<float> data(world.rank() == 1 ? 8 : 4);
      world.all_reduce(elements(data)).wait();
      world.barrier();
    });
    expect_everywhere(messages, 3, "all_reduce of 8 f32");
    expect_everywhere(messages, 3, "all_reduce of 4 f32");
  }
}

TEST(Mismatch, types_ops_and_collectives_are_named_on_every_rank) {
  for (const char* hosts : {"", "a,b"}) {
    auto messages = failure_of(2, hosts, [](Communicator& world) {
      std::vector<float> f(4);
      std::vector<std::int32_t> i(4);
      (world.rank() == 0 ? world.all_reduce(elements(f)) : world.all_reduce(elements(i))).wait();
      world.barrier();
    });
    expect_everywhere(messages, 2, "4 f32");
    expect_everywhere(messages, 2, "4 i32");
    messages = failure_of(2, hosts, [](Communicator& world) {
      std::vector<float> f(4);
      world.all_reduce(elements(f), world.rank() == 0 ? ReduceOp::max : ReduceOp::sum).wait();
      world.barrier();
    });
    expect_everywhere(messages, 2, "f32, max");
    expect_everywhere(messages, 2, "f32, sum");
    messages = failure_of(2, hosts, [](Communicator& world) {
      std::vector<float> f(4);
      if (world.rank() == 0) {
        world.barrier();
      }
      world.all_reduce(elements(f)).wait();
      world.barrier();
    });
    expect_everywhere(messages, 2, "barrier");
    expect_everywhere(messages, 2, "all_reduce of 4 f32");
  }
}

TEST(Mismatch, roots_of_one_host_are_named_though_nobody_waits_for_data) {
  // Each takes itself for the root, which needs nothing from the other.
  const auto messages = failure_of(2, "", [](Communicator& world) {
    float x = 1;
    world.broadcast(elements(std::span(&x, 1)), world.rank()).wait();
  });
  expect_everywhere(messages, 2, "broadcast of 1 f32 from root 0");
  expect_everywhere(messages, 2, "broadcast of 1 f32 from root 1");
}

TEST(Deadline, a_rank_that_never_calls_is_named) {
  for (const char* hosts : {"", "a,b,c"}) {
    std::atomic<int> waiting = 2;
    std::vector<std::string> messages(3);
    Config config = quick();
    config.host = hosts;
    EXPECT_THROW(
        run_virtual_ranks(
            3, config,
            [&](Communicator& world) {
              if (world.rank() == 1) {
                waiting.wait(2);
                waiting.wait(1);
                return;
              }
              float x = 1;
              try {
                world.all_reduce(elements(std::span(&x, 1)), ReduceOp::sum, {.timeout = 300ms})
                    .wait();
              } catch (const Error& error) {
                EXPECT_EQ(error.code(), ErrorCode::timeout);
                EXPECT_NE(std::string(error.what()).find("not called by rank 1"), std::string::npos)
                    << error.what();
              }
              waiting.fetch_sub(1);
              waiting.notify_all();
              throw Error(ErrorCode::timeout, "done");
            }),
        Error);
  }
}

TEST(Contract, wrong_calls_throw_before_anything_moves) {
  run_virtual_ranks(2, quick(), [](Communicator& world) {
    std::vector<float> four(4), five(5);
    std::vector<double> doubles(4);
    EXPECT_THROW(world.all_reduce(elements(four), elements(five)), Error);
    EXPECT_THROW(world.all_reduce(elements(four), elements(doubles)), Error);
    EXPECT_THROW(world.all_gather(elements(four), elements(five)), Error);
    EXPECT_THROW(world.broadcast(elements(four), 2), Error);
    EXPECT_THROW(world.send(elements(four), 5), Error);
    EXPECT_THROW(world.all_reduce(ConstElements(four.data(), 3, DType::f32),
                                  Elements{four.data() + 1, 3, DType::f32}),
                 Error);
    world.all_reduce(elements(four)).wait();
  });
}

TEST(Abort, reaches_ranks_that_wait) {
  const auto messages = failure_of(3, "", [](Communicator& world) {
    world.barrier();
    if (world.rank() == 2) {
      throw Error(ErrorCode::invalid_argument, "rank 2 gives up");
    }
    float x = 1;
    world.all_reduce(elements(std::span(&x, 1))).wait();
  });
  expect_everywhere(messages, 3, "rank 2 gives up");
}

}  // namespace
}  // namespace sprat
