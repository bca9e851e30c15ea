// How the number of reads at one target follows what the target does with them.
#include "io/reading/target_flow.hpp"

#include <gtest/gtest.h>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t flow_bytes = 1 << 20;

/// A target that answers each read `latency` after it came and moves `rate` bytes a second in all;
/// it is always given as many reads as it may have.
void serve(TargetFlow& flow, Moment& now, int reads, Moment latency, double rate,
           std::uint64_t bytes = flow_bytes) {
  for (int read = 0; read < reads; ++read) {
    const auto transfer = std::chrono::duration_cast<Moment>(
        std::chrono::duration<double>(static_cast<double>(bytes) / rate));
    // Little's law: of n reads at once each takes as long as n take one after another.
    const Moment took = std::max<Moment>(latency + transfer, transfer * flow.cap());
    now += std::max<Moment>(transfer, (latency + transfer) / flow.cap());
    flow.finished({.bytes = bytes, .took = took, .held_back = true}, now);
  }
}

TEST(TargetFlow, gives_more_reads_to_a_target_that_is_far_away) {
  TargetFlow flow({});
  Moment now{};
  serve(flow, now, 2000, milliseconds(20), 1e9);
  // 20 ms of 1 GB/s are 19 reads of 1 MiB.
  EXPECT_GE(flow.cap(), 15u);
  EXPECT_LE(flow.cap(), 45u);
}

TEST(TargetFlow, gives_few_reads_to_a_target_where_they_wait_for_each_other) {
  TargetFlow flow({.first_reads = 40});
  Moment now{};
  serve(flow, now, 1, milliseconds(1), 1e9, 1 << 20);
  for (int round = 0; round < 20; ++round) {
    // One read alone now and then shows how quick the target can be.
    flow.finished({.bytes = flow_bytes, .took = milliseconds(2), .held_back = false}, now);
    serve(flow, now, 100, milliseconds(1), 1e9);
  }
  EXPECT_LE(flow.cap(), 8u);
  EXPECT_GE(flow.cap(), 2u);
}

TEST(TargetFlow, asks_for_no_more_than_is_wanted) {
  TargetFlow flow({});
  for (int read = 1; read <= 1000; ++read) {
    flow.finished({.bytes = flow_bytes, .took = milliseconds(1), .held_back = false},
                  milliseconds(read));
  }
  EXPECT_EQ(flow.cap(), 4u);
}

TEST(TargetFlow, holds_reads_against_those_of_their_size) {
  TargetFlow flow({.least_reads = 2, .first_reads = 16});
  Moment now{};
  for (int read = 0; read < 1000; ++read) {
    now += milliseconds(1);
    const bool small = read % 8 != 0;
    flow.finished({.bytes = small ? 4096u : 4u << 20,
                   .took = small ? Moment(microseconds(100)) : Moment(milliseconds(4))},
                  now);
  }
  EXPECT_EQ(flow.cap(), 16u) << "a long read of many bytes is not slow";
}

TEST(TargetFlow, forgets_how_quick_a_target_was_within_twenty_seconds) {
  TargetFlow flow({.first_reads = 8});
  Moment now{};
  serve(flow, now, 200, microseconds(200), 1.3e9);
  // Its burst is spent.
  serve(flow, now, 300, microseconds(200), 5e7);
  EXPECT_EQ(flow.cap(), 2u);
  const Moment begin = now;
  while (now - begin < seconds(60)) {
    serve(flow, now, 10, milliseconds(100), 5e7, 4096);
  }
  EXPECT_GT(flow.cap(), 8u) << "small reads of a target far away again need company";
}

TEST(TargetFlow, refuses_limits_that_contradict_each_other) {
  EXPECT_THROW(TargetFlow({.least_reads = 5, .first_reads = 4}), Error);
  EXPECT_THROW(TargetFlow({.first_reads = 100}), Error);
  EXPECT_THROW(TargetFlow({.least_reads = 0, .first_reads = 4}), Error);
}

}  // namespace
}  // namespace sprat::io
