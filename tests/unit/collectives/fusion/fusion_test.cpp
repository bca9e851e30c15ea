// Fusion: what it reduces is, bit for bit, what an all_reduce of each parameter would give.
#include "sprat/fusion.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace sprat {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Bytes = std::vector<std::byte>;

constexpr std::size_t KiB = 1024;

struct Job {
  int ranks;
  const char* hosts;
};
void PrintTo(const Job& job, std::ostream* out) {
  *out << job.ranks << " ranks on \"" << job.hosts << "\"";
}

class Fusions : public testing::TestWithParam<Job> {
 protected:
  void run(const std::function<void(Communicator&)>& body) {
    Config config;
    config.host = GetParam().hosts;
    config.timeout = 60s;
    run_virtual_ranks(GetParam().ranks, config, body);
  }
};

/// Any bits, the same in every run.
Bytes gradient_of(const FusionParameter& parameter, std::size_t index, int rank, int step) {
  std::seed_seq seed{static_cast<int>(index), rank, step};
  std::mt19937_64 random(seed);
  Bytes bytes(parameter.count * size_of(parameter.dtype));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  return bytes;
}

Elements view(Bytes& bytes, const FusionParameter& parameter) {
  return {bytes.data(), parameter.count, parameter.dtype};
}

/// This rank's parameters in a step, and what an all_reduce of each makes of them.
struct Step {
  Step(Communicator& world, const std::vector<FusionParameter>& parameters, const Reduction& op,
       int step) {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      data.push_back(gradient_of(parameters[index], index, world.rank(), step));
      expected.push_back(data.back());
      world.all_reduce(view(expected.back(), parameters[index]), op, {.blocking = true});
    }
  }
  std::vector<Bytes> data, expected;
};

/// Indices in an order of this rank's own.
std::vector<std::size_t> shuffled(std::size_t count, int rank, int step) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(100 * step + rank)));
  return order;
}

std::vector<FusionParameter> mixed_parameters() {
  std::vector<FusionParameter> parameters;
  for (const std::size_t count : {1, 0, 700, 33}) {
    for (const DType dtype : all_dtypes()) {
      if (takes(ReduceOp::sum, dtype)) {
        parameters.push_back({count, dtype});
      }
    }
  }
  return parameters;
}

TEST_P(Fusions, reduce_what_all_reduces_would_bit_for_bit) {
  const std::vector<FusionParameter> parameters = mixed_parameters();
  run([&](Communicator& world) {
    Fusion fusion(world, parameters, {.bucket_bytes = 4 * KiB});
    for (int number = 0; number < 3; ++number) {
      Step step(world, parameters, ReduceOp::sum, number);
      for (const std::size_t index : shuffled(parameters.size(), world.rank(), number)) {
        fusion.put(index, view(step.data[index], parameters[index]));
      }
      EXPECT_THAT(fusion.flush(), IsEmpty());
      for (std::size_t index = 0; index < parameters.size(); ++index) {
        EXPECT_EQ(step.data[index], step.expected[index])
            << "parameter " << index << ", " << name(parameters[index].dtype) << ", on rank "
            << world.rank() << " in step " << number;
      }
    }
  });
}

TEST_P(Fusions, average_and_premultiply) {
  const std::vector<FusionParameter> parameters = {
      {100, DType::bf16}, {5000, DType::f32}, {333, DType::f8e5m2}, {64, DType::f64}};
  run([&](Communicator& world) {
    for (const Reduction& op : {Reduction(ReduceOp::avg), Reduction::premultiplied_sum(-1.0 / 3)}) {
      Fusion fusion(world, parameters, {.bucket_bytes = KiB, .op = op});
      Step step(world, parameters, op, 0);
      for (std::size_t index = 0; index < parameters.size(); ++index) {
        fusion.put(index, view(step.data[index], parameters[index]));
      }
      fusion.flush();
      EXPECT_EQ(step.data, step.expected) << describe(op) << " on rank " << world.rank();
    }
  });
}

TEST_P(Fusions, take_puts_of_several_threads) {
  const std::vector<FusionParameter> parameters(40, {777, DType::f32});
  run([&](Communicator& world) {
    Fusion fusion(world, parameters, {.bucket_bytes = 16 * KiB});
    for (int number = 0; number < 5; ++number) {
      Step step(world, parameters, ReduceOp::sum, number);
      const auto order = shuffled(parameters.size(), world.rank(), number);
      std::vector<std::thread> threads;
      for (std::size_t thread = 0; thread < 3; ++thread) {
        threads.emplace_back([&, thread] {
          for (std::size_t at = thread; at < order.size(); at += 3) {
            fusion.put(order[at], view(step.data[order[at]], parameters[order[at]]));
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      fusion.flush();
      EXPECT_EQ(step.data, step.expected) << "on rank " << world.rank();
    }
  });
}

TEST_P(Fusions, need_no_copy_of_what_lies_in_its_slot) {
  const std::vector<FusionParameter> parameters(6, {500, DType::f16});
  run([&](Communicator& world) {
    Fusion fusion(world, parameters, {.bucket_bytes = 2 * KiB});
    Step step(world, parameters, ReduceOp::sum, 0);
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      const Elements slot = fusion.slot(index);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slot.data) % 128, 0u);
      EXPECT_EQ(slot.count, 500u);
      std::memcpy(slot.data, step.data[index].data(), slot.bytes());
      fusion.put(index, slot);
    }
    fusion.flush();
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      const Elements slot = fusion.slot(index);
      EXPECT_EQ(std::memcmp(slot.data, step.expected[index].data(), slot.bytes()), 0)
          << "parameter " << index << " on rank " << world.rank();
    }
  });
}

TEST_P(Fusions, list_what_nobody_has_put_and_count_it_as_zero) {
  const std::vector<FusionParameter> parameters(8, {100, DType::f32});
  const std::vector<std::size_t> absent = {1, 4, 5, 7};  // of buffers: a part, none, all, a part
  run([&](Communicator& world) {
    Fusion fusion(world, parameters, {.bucket_bytes = KiB});
    for (int number = 0; number < 3; ++number) {
      Step step(world, parameters, ReduceOp::sum, number);
      for (std::size_t index = 0; index < parameters.size(); ++index) {
        const bool put = number != 1 || std::ranges::find(absent, index) == absent.end();
        if (put) {
          fusion.put(index, view(step.data[index], parameters[index]));
        }
        if (!put) {
          step.expected[index] = Bytes(100 * sizeof(float));
        }
      }
      EXPECT_EQ(fusion.flush(), number == 1 ? absent : std::vector<std::size_t>{});
      for (std::size_t index = 0; index < parameters.size(); ++index) {
        const Elements slot = fusion.slot(index);
        EXPECT_EQ(std::memcmp(slot.data, step.expected[index].data(), slot.bytes()), 0)
            << "parameter " << index << " on rank " << world.rank() << " in step " << number;
      }
    }
    EXPECT_THAT(fusion.flush(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  });
}

TEST_P(Fusions, are_apart_from_other_calls_and_from_each_other) {
  const std::vector<FusionParameter> parameters(4, {1000, DType::i32});
  run([&](Communicator& world) {
    std::optional<Communicator> copy = world.duplicate();
    Fusion one(*copy, parameters, {.bucket_bytes = 1}), other(*copy, parameters);
    copy.reset();
    Step step(world, parameters, ReduceOp::sum, 0), next(world, parameters, ReduceOp::sum, 1);
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      // Which Fusion is filled first, and what is called between, differs from rank to rank.
      Fusion& first = world.rank() % 2 == 0 ? one : other;
      Step& its = world.rank() % 2 == 0 ? step : next;
      first.put(index, view(its.data[index], parameters[index]));
    }
    world.barrier();
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      Fusion& second = world.rank() % 2 == 0 ? other : one;
      Step& its = world.rank() % 2 == 0 ? next : step;
      second.put(index, view(its.data[index], parameters[index]));
    }
    Fusion moved = std::move(one);
    moved.flush();
    other.flush();
    EXPECT_EQ(step.data, step.expected) << "on rank " << world.rank();
    EXPECT_EQ(next.data, next.expected) << "on rank " << world.rank();
  });
}

TEST_P(Fusions, are_made_of_groups) {
  const std::vector<FusionParameter> parameters(3, {1000, DType::f32});
  run([&](Communicator& world) {
    auto half = world.split(world.rank() % 2, -world.rank());
    Fusion fusion(*half, parameters, {.op = ReduceOp::avg});
    Step step(*half, parameters, ReduceOp::avg, 0);
    for (const std::size_t index : {2, 0, 1}) {
      fusion.put(index, view(step.data[index], parameters[index]));
    }
    fusion.flush();
    EXPECT_EQ(step.data, step.expected) << "on rank " << world.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, Fusions,
                         testing::Values(Job{1, ""}, Job{2, ""}, Job{3, ""}, Job{4, ""}, Job{5, ""},
                                         Job{2, "a,b"}, Job{3, "a,a,b"}, Job{4, "a,b,a,b"},
                                         Job{5, "a,a,b,b,c"}));

}  // namespace
}  // namespace sprat
