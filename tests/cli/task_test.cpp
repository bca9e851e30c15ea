// The benchmark's sizes, factors and guard zones.
#include "cli/bench/task.hpp"

#include <gtest/gtest.h>

#include "cli/bench/report.hpp"

namespace sprat::cli {
namespace {

TEST(Task, sizes_are_those_of_nccl_tests) {
  // At 4 ranks and 64 KiB of f32: all of it for one buffer, a quarter of it for each block.
  for (Collective collective : all_collectives()) {
    const bool one_block = collective == Collective::all_reduce ||
                           collective == Collective::broadcast ||
                           collective == Collective::sendrecv;
    const Task task{.collective = collective, .count = count_for(collective, DType::f32, 4, 65536)};
    EXPECT_EQ(task.count, one_block ? 16384u : 4096u) << name(collective);
    EXPECT_EQ(bytes(task, 4), 65536u) << name(collective);
  }
}

TEST(Task, bus_factors_are_those_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::sendrecv, 4), 1);
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
  const Row row{.task = {.collective = Collective::all_gather, .dtype = DType::f32, .count = 250},
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
