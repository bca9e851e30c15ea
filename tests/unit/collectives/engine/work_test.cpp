// What a Work tells of its end.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "collectives/record/flight_record.hpp"
#include "sprat/communicator.hpp"

namespace sprat {
namespace {

constexpr int few_ranks = 3;

TEST(OnDone, is_called_once_without_anybody_waiting) {
  run_virtual_ranks(few_ranks, Config(), [](Communicator& world) {
    std::vector<float> data(100'000, 1);
    std::atomic<int> calls = 0;
    Work work = world.all_reduce(elements(data));
    work.on_done([&] {
      ++calls;
      calls.notify_all();
    });
    calls.wait(0);
    EXPECT_TRUE(work.done());
    work.wait();
    EXPECT_EQ(data.back(), few_ranks);
    world.barrier();
    EXPECT_EQ(calls, 1);
  });
}

TEST(OnDone, is_called_at_once_for_what_is_done) {
  int calls = 0;
  Work().on_done([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  run_virtual_ranks(few_ranks, Config(), [](Communicator& world) {
    std::vector<float> data(10, 1);
    Work work = world.all_reduce(elements(data));
    work.wait();
    int called = 0;
    work.on_done([&] { ++called; });
    EXPECT_EQ(called, 1);
  });
}

// A notice may hold the Work, as whoever reads its result there does: the two would keep each
// other.
TEST(OnDone, lets_go_of_what_it_has_called) {
  run_virtual_ranks(few_ranks, Config(), [](Communicator& world) {
    std::vector<float> data(10, 1), more(100'000, 1);
    const auto kept = [&](Work work) {
      auto held = std::make_shared<Work>(work);
      const std::weak_ptr<Work> left = held;
      std::atomic<bool> called = false;
      work.on_done([held = std::move(held), &called] {
        called = true;
        called.notify_all();
      });
      called.wait(false);
      // Another thread may just have called it.
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!left.expired() && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
      return left.use_count();
    };
    Work work = world.all_reduce(elements(data));
    work.wait();
    EXPECT_EQ(kept(work), 0) << "one that was done";
    EXPECT_EQ(kept(all_of({work, world.all_reduce(elements(data))})), 0) << "several";
    EXPECT_EQ(kept(world.all_reduce(elements(more))), 0) << "one under way";
  });
}

TEST(OnDone, of_several_is_called_when_the_last_ends) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    std::int32_t early = 0, late = 0;
    if (world.rank() == 1) {
      world.send({&early, 1, DType::i32}, 0, 1).wait();
      world.recv({&early, 1, DType::i32}, 0, 3).wait();
      world.send({&late, 1, DType::i32}, 0, 2).wait();
      return;
    }
    std::atomic<int> calls = 0;
    Work first = world.recv({&early, 1, DType::i32}, 1, 1);
    Work both = all_of({first, world.recv({&late, 1, DType::i32}, 1, 2)});
    both.on_done([&] {
      ++calls;
      calls.notify_all();
    });
    first.wait();
    EXPECT_EQ(calls, 0);
    world.send({&early, 1, DType::i32}, 1, 3).wait();
    calls.wait(0);
    EXPECT_TRUE(both.done());
  });
}

TEST(OnDone, is_called_for_what_fails) {
  std::atomic<int> calls = 0;
  EXPECT_THROW(run_virtual_ranks(2, Config(),
                                 [&](Communicator& world) {
                                   std::int32_t value = 0;
                                   if (world.rank() == 1) {
                                     world.recv({&value, 1, DType::i32}, 0).wait();
                                     world.abort("enough");
                                     return;
                                   }
                                   Work work = world.recv({&value, 1, DType::i32}, 1);
                                   work.on_done([&] {
                                     ++calls;
                                     calls.notify_all();
                                   });
                                   world.send({&value, 1, DType::i32}, 1).wait();
                                   calls.wait(0);
                                   work.wait();
                                 }),
               Error);
  EXPECT_EQ(calls, 1);
}

TEST(OnDone, is_called_when_other_threads_may_call) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    std::int32_t in = 0, out = 0, go = 0;
    if (world.rank() == 1) {
      world.recv({&go, 1, DType::i32}, 0, 3).wait();
      world.send({&out, 1, DType::i32}, 0, 1).wait();
      world.recv({&in, 1, DType::i32}, 0, 2).wait();
      return;
    }
    std::future<void> other;
    std::atomic<int> calls = 0;
    bool others_could_call = false;
    Work work = world.recv({&in, 1, DType::i32}, 1, 1);
    work.on_done([&] {
      other = std::async(std::launch::async, [&] {
        world.send({&out, 1, DType::i32}, 1, 2).wait();
      });
      others_could_call = other.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
      ++calls;
      calls.notify_all();
    });
    world.send({&go, 1, DType::i32}, 1, 3).wait();
    work.wait();
    calls.wait(0);
    EXPECT_TRUE(others_could_call);
    other.get();
  });
}

TEST(StartBarrier, ends_with_the_last_rank_that_calls_either_form) {
  run_virtual_ranks(few_ranks, Config(), [](Communicator& world) {
    if (world.rank() == 1) {
      std::int32_t go = 0;
      world.recv({&go, 1, DType::i32}, 0).wait();
      world.barrier();
      return;
    }
    Work barrier = world.start_barrier();
    if (world.rank() == 0) {
      EXPECT_FALSE(barrier.test());
      std::int32_t go = 1;
      world.send({&go, 1, DType::i32}, 1).wait();
    }
    barrier.wait();
  });
}

TEST(FlightRecord, is_there_without_a_failure) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    std::vector<float> data(10, 1);
    world.all_reduce(elements(data)).wait();
    const std::string record = world.flight_record();
    EXPECT_NE(record.find("all_reduce"), std::string::npos) << record;
  });
}

// By each way that a call can take: eager and remembered, in pieces, started and waited for, on
// another communicator, as a message.
TEST(FlightRecord, counts_what_a_rank_has_done_on_all_communicators) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    std::vector<float> few(2, 1), many(1 << 20, 1);
    Communicator other = world.duplicate();
    const auto before = collectives::flight_record_from_json(world.flight_record());
    for (int round = 0; round < 5; ++round) {
      world.all_reduce(elements(few), ReduceOp::sum, {.blocking = true}).wait();
    }
    other.all_reduce(elements(many)).wait();
    if (world.rank() == 0) {
      world.send(elements(few), 1).wait();
    } else {
      world.recv(elements(few), 0).wait();
    }
    const auto after = collectives::flight_record_from_json(world.flight_record());
    const auto grown = [&](const std::string& operation) {
      std::vector<std::uint64_t> grown{0, 0};
      for (const auto& one : after.totals) {
        grown[0] += one.operation == operation ? one.calls : 0;
        grown[1] += one.operation == operation ? one.bytes : 0;
      }
      for (const auto& one : before.totals) {
        grown[0] -= one.operation == operation ? one.calls : 0;
        grown[1] -= one.operation == operation ? one.bytes : 0;
      }
      return grown;
    };
    using Grown = std::vector<std::uint64_t>;
    EXPECT_EQ(grown("all_reduce"), (Grown{6, 5 * 8 + (4 << 20)})) << world.rank();
    const bool sends = world.rank() == 0;
    EXPECT_EQ(grown("send"), (sends ? Grown{1, 8} : Grown{0, 0})) << world.rank();
    EXPECT_EQ(grown("recv"), (sends ? Grown{0, 0} : Grown{1, 8})) << world.rank();
    EXPECT_EQ(after.hosts, 1);
    EXPECT_LE(after.started, after.taken);
  });
}

}  // namespace
}  // namespace sprat
