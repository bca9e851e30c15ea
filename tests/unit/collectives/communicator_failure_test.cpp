// What a communicator does when ranks disagree, are late, give up or make wrong calls.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/communicator_impl.hpp"
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
        world.barrier();  // everybody has joined: a failure would end the joining of others
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

TEST(Mismatch, a_communicator_that_one_rank_has_freed_is_named_on_every_rank) {
  for (const char* hosts : {"", "a,b,c"}) {
    const auto messages = failure_of(3, hosts, [](Communicator& world) {
      {
        auto pair = world.duplicate("pair");
        pair.barrier();
        if (world.rank() != 1) {
          pair.barrier();
        }
      }
      world.barrier();
    });
    expect_everywhere(messages, 3, "rank 1 has freed that communicator");
  }
}

TEST(Mismatch, a_message_whose_peer_has_freed_the_communicator_is_named_on_every_rank) {
  for (const char* hosts : {"", "a,b,c"}) {
    for (const bool sends : {false, true}) {
      const auto messages = failure_of(3, hosts, [&](Communicator& world) {
        {
          auto pair = world.duplicate("pair");
          std::vector<float> data(1 << 20), other(1);
          if (world.rank() == 0) {  // what was sent before arrives all the same
            pair.send(elements(other), 1).wait();
            (sends ? pair.send(elements(data), 1) : pair.recv(elements(data), 1)).wait();
          } else if (world.rank() == 1) {
            pair.recv(elements(other), 0).wait();
          }
        }
        world.barrier();
      });
      expect_everywhere(messages, 3,
                        sends ? "rank 0 waits for a message to rank 1; rank 1 has freed"
                              : "rank 0 waits for a message from rank 1; rank 1 has freed");
    }
  }
}

// The peer has gone, but all that it sent before is here, or will be.
TEST(Mismatch, who_has_sent_may_free_a_communicator_before_its_messages_are_received) {
  for (const char* hosts : {"", "a,b"}) {
    Config config = quick();
    config.host = hosts;
    run_virtual_ranks(2, config, [](Communicator& world) {
      std::int32_t first = world.rank(), second = 0, go = 0;
      {
        auto pair = world.duplicate("pair");
        if (world.rank() == 1) {
          pair.send({&first, 1, DType::i32}, 0, 1).wait();
        } else {
          // Asked about while rank 1 has gone: the tag is another one's.
          Work never = pair.recv({&second, 1, DType::i32}, 1, 2);
          world.recv({&go, 1, DType::i32}, 1).wait();
          const auto until = std::chrono::steady_clock::now() + 500ms;
          while (std::chrono::steady_clock::now() < until) {
            ASSERT_FALSE(never.test());
          }
          pair.recv({&first, 1, DType::i32}, 1, 1).wait();
          EXPECT_EQ(first, 1);
        }
      }
      if (world.rank() == 1) {
        world.send({&go, 1, DType::i32}, 0).wait();
      }
    });
  }
}

// Rank 0 has sent what it has and goes; rank 1 waits for rank 2 until the coordinator has asked
// everybody.
TEST(Mismatch, who_has_called_may_free_a_communicator_before_the_others_are_through) {
  Config config = quick();
  config.host = "a,b,c";
  run_virtual_ranks(3, config, [](Communicator& world) {
    auto trio = world.duplicate("trio");
    const std::uint64_t id = trio.impl().executor.membership().id;
    std::vector<std::int32_t> data(4, world.rank()), sum(4);
    std::int32_t go = 0;
    if (world.rank() == 2) {
      world.recv({&go, 1, DType::i32}, 1).wait();
    }
    Work work = trio.reduce(elements(data), elements(sum), 1);
    if (world.rank() == 1) {
      while (world.impl().context->lateness(id, 0).late.empty()) {
        ASSERT_FALSE(work.test());
      }
      world.send({&go, 1, DType::i32}, 2).wait();
    }
    work.wait();
    if (world.rank() == 1) {
      EXPECT_EQ(sum.back(), 3);
    }
  });
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

TEST(Mismatch, roots_that_need_nothing_are_named_by_the_next_call_that_all_need) {
  // Each takes itself for the root, and so goes on.
  for (const char* hosts : {"", "a,b"}) {
    const auto messages = failure_of(2, hosts, [](Communicator& world) {
      float x = 1;
      world.broadcast(elements(std::span(&x, 1)), world.rank()).wait();
      world.all_reduce(elements(std::span(&x, 1))).wait();
    });
    expect_everywhere(messages, 2, "broadcast of 1 f32, root 0");
    expect_everywhere(messages, 2, "broadcast of 1 f32, root 1");
  }
}

TEST(Mismatch, roots_are_named_by_a_broadcast_to_another) {
  const auto messages = failure_of(2, "", [](Communicator& world) {
    float x = 1;
    world.broadcast(elements(std::span(&x, 1)), world.rank()).wait();
    world.broadcast(elements(std::span(&x, 1)), 0).wait();
    world.barrier();
  });
  expect_everywhere(messages, 2, "broadcast of 1 f32, root 0");
  expect_everywhere(messages, 2, "broadcast of 1 f32, root 1");
}

TEST(Mismatch, roots_are_named_on_every_rank) {
  for (const char* hosts : {"", "a,a,b"}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
      std::vector<std::function<void(Communicator&, int root)>> calls = {
          [count](Communicator& world, int root) {
            std::vector<float> in(count), out(count);
            world.reduce(elements(in), elements(out), root).wait();
          },
          [count](Communicator& world, int root) {
            std::vector<float> part(count), whole(3 * count);
            world.gather(elements(part), elements(whole), root).wait();
          },
          [count](Communicator& world, int root) {
            std::vector<float> part(count), whole(3 * count);
            world.scatter(elements(whole), elements(part), root).wait();
          },
          [count](Communicator& world, int root) {
            std::vector<float> part(count), whole(3 * count);
            const std::vector<std::size_t> counts(3, count);
            world.gatherv(elements(part), elements(whole), counts, root).wait();
          },
          [count](Communicator& world, int root) {
            std::vector<float> data(count);
            world.broadcast(elements(data), root).wait();
          }};
      for (const auto& call : calls) {
        const auto messages = failure_of(3, hosts, [&](Communicator& world) {
          call(world, world.rank() == 2 ? 2 : 1);
          world.barrier();
        });
        expect_everywhere(messages, 3, "root 1");
        expect_everywhere(messages, 3, "root 2");
      }
    }
  }
}

TEST(Mismatch, eager_calls_are_named_on_every_rank) {
  const auto messages = failure_of(3, "", [](Communicator& world) {
    constexpr Options blocking{.timeout = {}, .blocking = true};
    float word = 1;
    for (int round = 0; round < 3; ++round) {
      world.broadcast(elements(std::span(&word, 1)), 1, blocking);
      world.all_reduce(elements(std::span(&word, 1)), ReduceOp::max, blocking);
    }
    if (world.rank() == 2) {
      world.all_reduce(elements(std::span(&word, 1)), ReduceOp::max, blocking);
    } else {
      world.broadcast(elements(std::span(&word, 1)), 1, blocking);
    }
    world.barrier();
  });
  expect_everywhere(messages, 3, "mismatch");
  expect_everywhere(messages, 3, "broadcast of 1 f32, root 1");
  expect_everywhere(messages, 3, "all_reduce of 1 f32, max");
}

TEST(Mismatch, block_counts_are_named_on_every_rank) {
  for (const char* hosts : {"", "a,a,b"}) {
    auto messages = failure_of(3, hosts, [](Communicator& world) {
      std::vector<std::size_t> counts = {2, 5, 0};
      if (world.rank() == 1) {
        counts = {0, 5, 2};
      }
      std::vector<float> part(counts[static_cast<std::size_t>(world.rank())]), whole(7);
      world.all_gatherv(elements(part), elements(whole), counts).wait();
      world.barrier();
    });
    expect_everywhere(messages, 3, "all_gatherv of 2, 5, 0 f32");
    expect_everywhere(messages, 3, "all_gatherv of 0, 5, 2 f32");
    messages = failure_of(3, hosts, [](Communicator& world) {
      const std::vector<std::size_t> counts = {4, 4, 4};
      std::vector<float> part(4), whole(12);
      if (world.rank() == 0) {
        world.reduce_scatter(elements(whole), elements(part)).wait();
      } else {
        world.reduce_scatterv(elements(whole), elements(part), counts).wait();
      }
      world.barrier();
    });
    expect_everywhere(messages, 3, "reduce_scatter of 4 f32");
    expect_everywhere(messages, 3, "reduce_scatterv of 4, 4, 4 f32");
  }
}

TEST(Mismatch, of_two_ranks_about_one_block_names_both_and_both_counts) {
  for (const char* hosts : {"", "a,a,b", "a,b,c"}) {
    for (const std::size_t sent : {std::size_t{0}, std::size_t{3}, std::size_t{90'000}}) {
      const std::string value = std::to_string(sent);
      auto messages = failure_of(3, hosts, [sent](Communicator& world) {
        std::vector<std::size_t> leaving = {5, 5, 5}, coming = {5, 5, 5};
        if (world.rank() == 1) {
          leaving[2] = sent;  // rank 2 expects 5
        }
        std::vector<float> in(leaving[0] + leaving[1] + leaving[2]), out(15);
        world.all_to_allv(elements(in), elements(out), leaving, coming).wait();
        world.barrier();
      });
      expect_everywhere(messages, 3, "rank 1");
      expect_everywhere(messages, 3, "sends " + value + " f32 to rank 2");
      expect_everywhere(messages, 3, "expects 5");
      messages = failure_of(3, hosts, [sent](Communicator& world) {
        const std::vector<std::size_t> counts = {5, 5, 5};
        std::vector<float> part(world.rank() == 2 ? sent : 5), whole(15);
        world.gatherv(elements(part), elements(whole), counts, 0).wait();
        world.barrier();
      });
      expect_everywhere(messages, 3, "sends " + value + " f32 to rank 0");
      expect_everywhere(messages, 3, "expects 5");
    }
  }
}

TEST(Mismatch, in_a_call_that_moves_nothing_shows_in_the_next) {
  for (const char* hosts : {"", "a,b"}) {
    const auto messages = failure_of(2, hosts, [](Communicator& world) {
      std::vector<float> f;
      std::vector<std::int32_t> i;
      (world.rank() == 0 ? world.all_reduce(elements(f)) : world.all_reduce(elements(i))).wait();
      world.barrier();
    });
    expect_everywhere(messages, 2, "all_reduce of 0 f32");
    expect_everywhere(messages, 2, "all_reduce of 0 i32");
  }
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
              world.barrier();
              if (world.rank() == 1) {
                waiting.wait(2);
                waiting.wait(1);
                return;
              }
              float x = 1;
              try {
                world.all_reduce(elements(std::span(&x, 1)), ReduceOp::sum, {.timeout = 1s}).wait();
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

TEST(VirtualRanks, one_that_fails_at_once_harms_nobody_who_still_joins) {
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(run_virtual_ranks(4, Config(),
                                   [](Communicator& world) {
                                     if (world.rank() == 0) {
                                       throw std::runtime_error("at once");
                                     }
                                     world.barrier();
                                   }),
                 std::exception);
  }
}

/// A count that is right in elements and wraps in bytes would move nothing, or anything.
TEST(Contract, counts_that_no_memory_holds_are_refused) {
  run_virtual_ranks(2, quick(), [](Communicator& world) {
    std::vector<float> room(8);
    const auto many = [&](std::size_t count) { return Elements{room.data(), count, DType::f32}; };
    const auto expect_refused = [&](const char* verb, auto&& call) {
      try {
        call();
        ADD_FAILURE() << verb << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << verb << ": " << error.what();
        EXPECT_NE(std::string(error.what()).find("more than memory can hold"), std::string::npos)
            << verb << ": " << error.what();
      }
    };
    for (const std::size_t count :
         {std::size_t{1} << 61, std::size_t{1} << 62, std::size_t{1} << 63, ~std::size_t{0} - 1}) {
      const auto all = many(count), half = many(count / 2);
      expect_refused("all_reduce", [&] { world.all_reduce(all).wait(); });
      expect_refused("broadcast", [&] { world.broadcast(all, 0).wait(); });
      expect_refused("all_gather", [&] { world.all_gather(half, all).wait(); });
      expect_refused("all_gather", [&] { world.all_gather(all, many(2 * count)).wait(); });
      expect_refused("reduce_scatter", [&] { world.reduce_scatter(all, half).wait(); });
      expect_refused("all_to_all", [&] { world.all_to_all(all, all).wait(); });
      expect_refused("reduce", [&] { world.reduce(all, all, 0).wait(); });
      expect_refused("gather", [&] { world.gather(half, all, 0).wait(); });
      expect_refused("scatter", [&] { world.scatter(all, half, 0).wait(); });
      expect_refused("send", [&] { world.send(all, 1 - world.rank()).wait(); });
      expect_refused("recv", [&] { world.recv(all, 1 - world.rank()).wait(); });
      const std::vector<std::size_t> counts = {half.count, count - half.count};
      const auto mine = many(counts[world.rank()]);
      expect_refused("all_gatherv", [&] { world.all_gatherv(mine, all, counts).wait(); });
      expect_refused("reduce_scatterv", [&] { world.reduce_scatterv(all, mine, counts).wait(); });
      expect_refused("all_to_allv", [&] { world.all_to_allv(all, all, counts, counts).wait(); });
    }
  });
}

}  // namespace
}  // namespace sprat
