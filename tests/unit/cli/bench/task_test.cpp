// The benchmark's sizes, factors and guard zones.
#include "cli/bench/task.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/bench/report.hpp"

namespace sprat::cli {
namespace {

TEST(Task, sizes_are_those_of_nccl_tests) {
  // At 4 ranks and 64 KiB of f32: all of it for one buffer, a quarter of it for each equal block.
  for (const BenchCall& call : all_bench_calls()) {
    const bool one_block = call.shape == Shape::whole || call.uneven;
    const Task task{.call = call, .count = count_for(call, DType::f32, 4, 65536)};
    EXPECT_EQ(task.count, one_block ? 16384u : 4096u) << name(call);
    EXPECT_EQ(bytes(task, 4), 65536u) << name(call);
  }
}

TEST(Task, bus_factors_are_those_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(bus_factor(bench_call("all_reduce"), 4), 1.5);
  for (const char* one : {"broadcast", "reduce", "sendrecv"}) {
    EXPECT_DOUBLE_EQ(bus_factor(bench_call(one), 4), 1) << one;
  }
  for (const char* one : {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter",
                          "all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "all_to_allv"}) {
    EXPECT_DOUBLE_EQ(bus_factor(bench_call(one), 4), 0.75) << one;
  }
}

TEST(Task, every_collective_with_buffers_is_measured) {
  for (const Collective collective : collectives::all_collectives()) {
    EXPECT_TRUE(std::ranges::any_of(all_bench_calls(), [&](const BenchCall& call) {
      return call.is(collective);
    })) << collectives::name(collective);
  }
}

TEST(Task, uneven_blocks_add_up_to_the_size) {
  using Counts = std::vector<std::size_t>;
  const auto blocks = [](std::size_t count, int ranks) {
    return block_counts({.call = bench_call("gatherv"), .count = count}, ranks);
  };
  EXPECT_EQ(blocks(1000, 1), Counts({1000}));
  EXPECT_EQ(blocks(1000, 2), Counts({333, 667}));
  EXPECT_EQ(blocks(1000, 3), Counts({333, 667, 0}));
  EXPECT_EQ(blocks(1000, 5), Counts({166, 334, 0, 166, 334}));
  EXPECT_EQ(blocks(1, 3), Counts({0, 1, 0}));
  EXPECT_EQ(blocks(0, 3), Counts({0, 0, 0}));
  EXPECT_EQ(blocks(1UL << 37, 2), Counts({45812984490, 91625968982}));
}

/// True if `rank` of three gets elements when `root` alone has been the root.
bool has_output(const BenchCall& call, int rank, int root) {
  if (call.uneven && call.shape == Shape::scatters) {
    return rank != 2;  // whose block is empty
  }
  const bool root_alone = has_root(call) && (reduces(call) || call.shape == Shape::gathers);
  return !root_alone || rank == root;
}

/// 4 KiB of i32, rooted in the middle.
Task task_of(const BenchCall& call, int ranks) {
  return {.call = call,
          .dtype = DType::i32,
          .count = count_for(call, DType::i32, ranks, 4096),
          .root = 1};
}

TEST(Run, sees_each_wrong_element_of_every_collective) {
  constexpr int ranks = 3;
  run_virtual_ranks(ranks, {}, [](Communicator& world) {
    const std::string who = " on rank " + std::to_string(world.rank());
    Buffers buffers(Buffers::Kind::private_memory, 4096);
    for (const BenchCall& call : all_bench_calls()) {
      const Oracle oracle(call, DType::i32, ReduceOp::sum, ranks, world.rank());
      const Task task = task_of(call, ranks);
      const std::uint64_t one = has_output(call, world.rank(), task.root) ? 1 : 0;
      cli::Run run(world, task, oracle, buffers);
      run.prepare();
      run();
      EXPECT_EQ(run.wrong(), 0u) << name(call) << who;
      buffers.output()[0] ^= std::byte{1};
      EXPECT_EQ(run.wrong(), one) << name(call) << who;
      buffers.output()[0] ^= std::byte{1};
      buffers.output()[-1] ^= std::byte{1};
      EXPECT_EQ(run.wrong(), 1u) << name(call) << who;
    }
  });
}

TEST(Run, roots_take_turns) {
  constexpr int ranks = 3;
  run_virtual_ranks(ranks, {}, [](Communicator& world) {
    Buffers buffers(Buffers::Kind::private_memory, 4096);
    for (const BenchCall& call : all_bench_calls()) {
      const Oracle oracle(call, DType::i32, ReduceOp::sum, ranks, world.rank());
      const Task task = task_of(call, ranks);
      cli::Run run(world, task, oracle, buffers);
      run.prepare();
      for (int calls = 1; calls <= 2 * ranks; ++calls) {
        run();
        EXPECT_EQ(run.wrong(), 0u)
            << name(call) << " after " << calls << " calls on rank " << world.rank();
      }
      // Once everybody has been root, everybody's output counts, but for an empty block's.
      buffers.output()[0] ^= std::byte{1};
      EXPECT_EQ(run.wrong(), has_output(call, world.rank(), world.rank()) ? 1u : 0u)
          << name(call) << " on rank " << world.rank();
    }
  });
}

TEST(Buffers, see_a_write_on_either_side) {
  for (auto kind : {Buffers::Kind::private_memory, Buffers::Kind::shared_memory}) {
    Buffers buffers(kind, 1000);
    buffers.set_guards(600);
    EXPECT_EQ(buffers.broken_guards(600), 0u);
    buffers.output()[600] = std::byte{1};
    buffers.output()[-1] = std::byte{1};
    buffers.input()[600 + Buffers::guard_bytes - 1] = std::byte{1};
    EXPECT_EQ(buffers.broken_guards(600), 3u) << name(kind);
  }
}

TEST(Row, json_has_the_documented_keys_in_order) {
  const Row row{.task = {.call = bench_call("all_gather"), .dtype = DType::f32, .count = 250},
                .ranks = 4,
                .hosts = 2,
                .memory = Buffers::Kind::shared_memory,
                .algorithm = "direct",
                .timing = {.median_us = 2, .p99_us = 3, .min_us = 1},
                .wrong = 0};
  EXPECT_EQ(to_json(row),
            R"({"collective":"all_gather","bytes":4000,"count":250,"dtype":"f32","op":"none",)"
            R"("ranks":4,"hosts":2,"memory":"shared","in_place":false,"algorithm":"direct",)"
            R"("time_us":{"median":2.0,"p99":3.0,"min":1.0},"algbw_GBps":2.0,"busbw_GBps":1.5,)"
            R"("wrong":0})");
}

}  // namespace
}  // namespace sprat::cli
