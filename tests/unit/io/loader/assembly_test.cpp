// Requests become samples: what is copied, what is not, and who lets go of what.
#include "io/loader/assembly.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>

namespace sprat::io {
namespace {

/// A build of samples that are each one extent of file 0, and a planner for them.
struct Bench {
  ReadPlanner planner{{.request_bytes = 4096, .hole_bytes = 0}};
  std::shared_ptr<MemoryPool> pool = MemoryPool::make(1 << 24);
  Assembly assembly{pool};
  std::uint32_t alignment = 1;
  std::uint64_t position = 0;
  ReadPlan plan;

  std::shared_ptr<BatchBuild> expect(const std::vector<Extents>& samples,
                                     std::uint64_t row_bytes = 0) {
    const auto build = std::make_shared<BatchBuild>();
    build->begin = position;
    build->batch->samples.resize(samples.size());
    build->progress.resize(samples.size());
    if (row_bytes > 0) {
      build->copies = true;
      build->batch->rows = MemoryPool::make(0)->take(row_bytes * samples.size());
    }
    std::vector<WantedSample> wanted;
    std::vector<std::size_t> numbers(samples.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    for (const Extents& extents : samples) {
      wanted.push_back({.position = position++, .extents = extents});
    }
    plan = planner.plan(wanted, [this](std::uint32_t) {
      return PlannedFile{.bytes = 16 << 20, .alignment = alignment};
    });
    complete = assembly.expect(build, plan, numbers);
    for (const Request& request : plan.requests) {
      extents[request.id] = request.extent;
    }
    return build;
  }

  /// Fills the request as the file has it: byte i is i modulo 251.
  std::vector<SampleRef> arrive(const Request& request) {
    const std::span<std::byte> memory = assembly.memory(request.id);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = static_cast<std::byte>((request.extent.offset + i) % 251);
    }
    return assembly.arrived(request.id);
  }
  std::vector<SampleRef> complete;
  std::map<std::uint64_t, Extent> extents;  ///< Of all requests.
};

void expect_bytes(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t count) {
  ASSERT_EQ(bytes.size(), count);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(bytes[i], static_cast<std::byte>((offset + i) % 251)) << i;
  }
}

TEST(Assembly, a_sample_of_several_requests_is_one_piece_of_memory_without_a_copy) {
  Bench bench;
  const auto build = bench.expect({{{.file = 0, .offset = 100, .bytes = 10000}}});
  ASSERT_GT(bench.plan.requests.size(), 1u);
  std::size_t done = 0;
  for (const Request& request : bench.plan.requests) {
    done += bench.arrive(request).size();
  }
  EXPECT_EQ(done, 1u);
  expect_bytes(build->batch->samples[0].bytes, 100, 10000);
  EXPECT_EQ(build->batch->memory.size(), 1u);
  const std::byte* first = bench.assembly.memory(bench.plan.requests[0].id).data();
  EXPECT_EQ(build->batch->samples[0].bytes.data(),
            first + 100 - bench.plan.requests[0].extent.offset);
}

TEST(Assembly, extents_that_lie_apart_are_joined) {
  Bench bench;
  const auto build = bench.expect(
      {{{.file = 0, .offset = 50000, .bytes = 10}, {.file = 0, .offset = 100, .bytes = 20}}});
  for (const Request& request : bench.plan.requests) {
    bench.arrive(request);
  }
  const std::span<const std::byte> bytes = build->batch->samples[0].bytes;
  expect_bytes(bytes.first(10), 50000, 10);
  expect_bytes(bytes.subspan(10), 100, 20);
}

TEST(Assembly, rows_lie_side_by_side_and_let_go_of_requests_at_once) {
  Bench bench;
  const auto build = bench.expect(
      {{{.file = 0, .offset = 70000, .bytes = 64}}, {{.file = 0, .offset = 10, .bytes = 64}}}, 64);
  for (const Request& request : bench.plan.requests) {
    bench.arrive(request);
  }
  expect_bytes(build->batch->row(0), 70000, 64);
  expect_bytes(build->batch->row(1), 10, 64);
  EXPECT_EQ(bench.assembly.take_unwanted().size(), bench.plan.requests.size());
}

TEST(Assembly, what_lies_here_already_is_not_asked_for_again) {
  Bench bench;
  const auto first = bench.expect({{{.file = 0, .offset = 0, .bytes = 4096}}});
  const std::uint64_t request = bench.plan.requests.front().id;
  bench.arrive(bench.plan.requests.front());
  const auto second = bench.expect({{{.file = 0, .offset = 1000, .bytes = 100}}});
  EXPECT_TRUE(bench.plan.requests.empty());
  ASSERT_EQ(bench.complete.size(), 1u);
  expect_bytes(second->batch->samples[0].bytes, 1000, 100);
  bench.assembly.let_go(*first);
  EXPECT_TRUE(bench.assembly.take_unwanted().empty()) << "the second batch still looks at it";
  bench.assembly.let_go(*second);
  EXPECT_EQ(bench.assembly.take_unwanted(), std::vector{request});
}

constexpr std::uint64_t large = 3 << 19;

/// Three neighbours in a file, none of which begins or ends with a block.
Extents neighbour(std::uint64_t number) {
  return {{.file = 0, .offset = 700 + number * large, .bytes = large}};
}

TEST(Assembly, a_large_sample_shares_blocks_with_its_neighbours_and_is_not_copied) {
  Bench bench;
  bench.alignment = 512;
  const auto before = bench.expect({neighbour(0)}), behind = bench.expect({neighbour(2)});
  const auto between = bench.expect({neighbour(1)}), again = bench.expect({neighbour(1)});
  const std::uint64_t taken = bench.pool->taken_bytes();
  for (const auto& [id, extent] : bench.extents) {
    bench.arrive({.id = id, .extent = extent});
  }
  EXPECT_EQ(bench.pool->taken_bytes(), taken) << "a copy was made";
  expect_bytes(before->batch->samples[0].bytes, 700, large);
  expect_bytes(behind->batch->samples[0].bytes, 700 + 2 * large, large);
  for (const auto& build : {between, again}) {
    expect_bytes(build->batch->samples[0].bytes, 700 + large, large);
    EXPECT_EQ(build->batch->memory.size(), 1u) << "its own";
  }
  bench.assembly.let_go(*before);
  before->batch->memory.clear();
  EXPECT_LT(bench.pool->taken_bytes(), taken) << "the neighbour's memory stays for a block";
  for (const auto& build : {behind, between, again}) {
    bench.assembly.let_go(*build);
  }
  EXPECT_EQ(bench.assembly.take_unwanted().size(), bench.extents.size());
}

TEST(Assembly, a_short_sample_between_two_large_ones_is_joined_whoever_goes_first) {
  for (const bool forwards : {true, false}) {
    Bench bench;
    bench.alignment = 512;
    const auto before = bench.expect({{{.file = 0, .offset = 0, .bytes = large}}});
    const std::map<std::uint64_t, Extent> first = bench.extents;
    const auto behind = bench.expect({{{.file = 0, .offset = large, .bytes = large}}});
    const auto between = bench.expect({{{.file = 0, .offset = large - 3000, .bytes = 6000}}});
    EXPECT_TRUE(bench.plan.requests.empty());
    for (const bool of_first : {forwards, !forwards}) {
      for (const auto& [id, extent] : bench.extents) {
        if (first.contains(id) == of_first) {
          bench.arrive({.id = id, .extent = extent});
        }
      }
      const auto& gone = of_first ? before : behind;
      bench.assembly.let_go(*gone);
      gone->batch->memory.clear();
    }
    expect_bytes(between->batch->samples[0].bytes, large - 3000, 6000);
    bench.assembly.let_go(*between);
    between->batch->memory.clear();
    EXPECT_EQ(bench.pool->taken_bytes(), 0u);
  }
}

TEST(Assembly, large_extents_that_only_touch_in_memory_are_joined_in_their_own_order) {
  Bench bench;
  bench.alignment = 512;
  const auto build = bench.expect(
      {{{.file = 0, .offset = 8 << 20, .bytes = 300}, {.file = 0, .offset = 0, .bytes = large}}});
  for (const Request& request : bench.plan.requests) {
    bench.arrive(request);
  }
  const std::span<const std::byte> bytes = build->batch->samples[0].bytes;
  expect_bytes(bytes.first(300), 8 << 20, 300);
  expect_bytes(bytes.subspan(300), 0, large);
}

TEST(Assembly, a_sample_without_bytes_is_complete) {
  Bench bench;
  bench.expect({{}});
  EXPECT_EQ(bench.complete.size(), 1u);
}

TEST(Assembly, a_dropped_sample_is_expected_anew) {
  Bench bench;
  const auto build = bench.expect({{{.file = 0, .offset = 0, .bytes = 100}}});
  bench.arrive(bench.plan.requests.front());
  bench.assembly.drop({build, 0});
  bench.planner.forget(bench.assembly.take_unwanted());
  const Extents other = {{.file = 0, .offset = 9000, .bytes = 50}};
  const WantedSample wanted{.position = 0, .extents = other};
  const ReadPlan plan = bench.planner.plan(
      std::span(&wanted, 1), [](std::uint32_t) { return PlannedFile{.bytes = 1 << 20}; });
  const std::size_t sample = 0;
  EXPECT_TRUE(bench.assembly.expect(build, plan, std::span(&sample, 1)).empty());
  EXPECT_EQ(bench.arrive(plan.requests.front()).size(), 1u);
  expect_bytes(build->batch->samples[0].bytes, 9000, 50);
}

TEST(Assembly, names_the_batches_that_want_a_request) {
  Bench bench;
  const auto first = bench.expect({{{.file = 0, .offset = 0, .bytes = 100}}});
  const std::uint64_t request = bench.plan.requests.front().id;
  const auto second = bench.expect({{{.file = 0, .offset = 0, .bytes = 100}}});
  EXPECT_EQ(bench.assembly.builds_of(request), (std::vector{first, second}));
}

}  // namespace
}  // namespace sprat::io
