// What communicators reduce: every type and operation, on one host and on two, and what they
// refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "sprat/communicator.hpp"
#include "tests/unit/collectives/kernels/reduce_reference.hpp"

namespace sprat {
namespace {

using namespace std::chrono_literals;
using collectives::Arithmetic;
using collectives::Term;
using collectives::reduce_reference::composed;
using Bytes = std::vector<std::byte>;

constexpr int rank_count = 5;

Config config_on(const char* hosts) {
  Config config;
  config.host = hosts;
  config.timeout = 60s;
  return config;
}

/// Any bits: numbers of every size, infinities, NaN; some zeros, for land.
Bytes contribution(int rank, DType dtype, std::size_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 100 +
                         static_cast<std::uint64_t>(dtype));
  Bytes bytes(count * size_of(dtype));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  for (std::size_t i = 0; i < count; i += 3) {
    if (random() % rank_count == 0) {
      std::memset(&bytes[i * size_of(dtype)], 0, size_of(dtype));
    }
  }
  return bytes;
}

Bytes reference(const Arithmetic& arithmetic, std::size_t count) {
  std::vector<Bytes> memory;
  std::vector<Term> terms;
  for (int rank = 0; rank < rank_count; ++rank) {
    memory.push_back(contribution(rank, arithmetic.input, count));
    terms.push_back({memory.back().data(), {rank, rank + 1}, false});
  }
  return collectives::reduce_reference::reference(arithmetic, terms, count);
}

struct DtypeAndReduction {
  DType dtype;
  Reduction reduction;
};

std::vector<DtypeAndReduction> every_case() {
  std::vector<DtypeAndReduction> cases;
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : all_reduce_ops()) {
      cases.push_back({dtype, op});
    }
    cases.push_back({dtype, Reduction::premultiplied_sum(-1.0 / 3)});
  }
  return cases;
}

class Reductions : public testing::TestWithParam<const char*> {};

TEST_P(Reductions, of_every_type_work_or_are_refused) {
  constexpr std::size_t count = 150;
  run_virtual_ranks(rank_count, config_on(GetParam()), [&](Communicator& world) {
    for (const auto& [dtype, reduction] : every_case()) {
      const std::string what = describe(reduction) + " of " + name(dtype);
      const Bytes in = contribution(world.rank(), dtype, count);
      Bytes out(in.size());
      const ConstElements from(in.data(), count, dtype);
      if (!takes(reduction.op(), dtype)) {
        try {
          world.all_reduce(from, {out.data(), count, dtype}, reduction).wait();
          ADD_FAILURE() << what << " went through";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << what;
          const std::string begin =
              std::string(name(reduction.op())) + " does not reduce " + name(dtype) + "; it takes";
          EXPECT_EQ(std::string(error.what()).rfind(begin, 0), 0u) << error.what();
        }
        continue;
      }
      Arithmetic arithmetic = {.input = dtype,
                               .output = dtype,
                               .op = reduction.op(),
                               .factor = reduction.factor(),
                               .ranks = rank_count};
      world.all_reduce(from, {out.data(), count, dtype}, reduction).wait();
      EXPECT_EQ(out, reference(arithmetic, count)) << what << " on rank " << world.rank();
      arithmetic.output = collectives::accumulator_of(dtype);
      Bytes wide(count * size_of(arithmetic.output));
      world.all_reduce(from, {wide.data(), count, arithmetic.output}, reduction).wait();
      EXPECT_EQ(wide, reference(arithmetic, count)) << what << " to f32 on rank " << world.rank();
    }
  });
}

/// One way to carry out each of the reductions, on one placement.
struct Way {
  const char* hosts;
  const char* rules;
};

// For failure messages.
void PrintTo(const Way& way, std::ostream* out) { *out << way.hosts << ": " << way.rules; }

class NarrowReductions : public testing::TestWithParam<Way> {};

// Between hosts one rank's contribution travels in its own type and partials of several in f32;
// in windows and in place too, that changes no bit.
TEST_P(NarrowReductions, have_the_same_bits_on_any_hosts_by_any_algorithm) {
  constexpr std::size_t count = 700, all = count * rank_count;
  constexpr int root = 3;
  Config config = config_on(GetParam().hosts);
  config.algorithm = GetParam().rules;
  config.staging_bytes = 4096;
  run_virtual_ranks(rank_count, config, [](Communicator& world) {
    for (const auto& [dtype, reduction] : every_case()) {
      if (collectives::accumulator_of(dtype) == dtype || !takes(reduction.op(), dtype)) {
        continue;
      }
      const std::string what = describe(reduction) + " of " + name(dtype);
      const Bytes expected = reference({.input = dtype,
                                        .output = dtype,
                                        .op = reduction.op(),
                                        .factor = reduction.factor(),
                                        .ranks = rank_count},
                                       all);
      const std::size_t block_bytes = count * size_of(dtype);
      const std::span mine = std::span(expected).subspan(world.rank() * block_bytes, block_bytes);
      const Bytes in = contribution(world.rank(), dtype, all);
      Bytes same = in, out(in.size()), block(block_bytes);
      const ConstElements from(in.data(), all, dtype);
      world.all_reduce({same.data(), all, dtype}, reduction).wait();
      EXPECT_EQ(same, expected) << what << ", in place, on rank " << world.rank();
      world.all_reduce(from, {out.data(), all, dtype}, reduction).wait();
      EXPECT_EQ(out, expected) << what << " on rank " << world.rank();
      world.reduce_scatter(from, {block.data(), count, dtype}, reduction).wait();
      EXPECT_TRUE(std::ranges::equal(block, mine)) << what << ", block of " << world.rank();
      world.reduce(from, {same.data(), all, dtype}, root, reduction).wait();
      EXPECT_EQ(same, expected) << what << ", reduced, on rank " << world.rank();
    }
  });
}

// A wrong length on either side would be an error, a wrong type another sum.
TEST_P(NarrowReductions, of_blocks_of_different_lengths_have_the_same_bits) {
  const std::vector<std::size_t> counts = {300, 0, 64, 1, 500};
  constexpr std::size_t all = 865;
  Config config = config_on(GetParam().hosts);
  config.algorithm = GetParam().rules;
  config.staging_bytes = 4096;
  run_virtual_ranks(rank_count, config, [&counts](Communicator& world) {
    const Arithmetic arithmetic = {
        .input = DType::bf16, .output = DType::bf16, .ranks = rank_count};
    const Bytes in = contribution(world.rank(), DType::bf16, all);
    std::size_t before = 0;
    for (int rank = 0; rank < world.rank(); ++rank) {
      before += counts[rank] * size_of(DType::bf16);
    }
    const std::size_t count = counts[world.rank()];
    Bytes block(count * size_of(DType::bf16));
    world.reduce_scatterv({in.data(), all, DType::bf16}, {block.data(), count, DType::bf16}, counts)
        .wait();
    const Bytes expected = reference(arithmetic, all);
    EXPECT_TRUE(std::ranges::equal(block, std::span(expected).subspan(before, block.size())))
        << "rank " << world.rank();
  });
}

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (const char* hosts : {"a,b,c,d,e", "a,b,b,b,b", "a,a,a,a,b", "a,b,a,b,a"}) {
    for (const char* rules :
         {"all_reduce one_shot; reduce_scatter direct; reduce direct",
          "all_reduce doubling; reduce_scatter doubling; reduce hierarchical",
          "all_reduce hierarchical; reduce_scatter hierarchical; reduce hierarchical"}) {
      ways.push_back({hosts, rules});
    }
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Hosts, NarrowReductions, testing::ValuesIn(every_way()));

Reduction composition(const char* name) {
  return Reduction::user({name, [](const void* left, void* right, std::size_t count, DType) {
                            const auto* const a = static_cast<const std::uint32_t*>(left);
                            auto* const b = static_cast<std::uint32_t*>(right);
                            for (std::size_t i = 0; i < count; ++i) {
                              b[i] = composed(a[i], b[i]);
                            }
                          }});
}

TEST_P(Reductions, by_a_function_keep_the_order_of_ranks) {
  run_virtual_ranks(rank_count, config_on(GetParam()), [](Communicator& world) {
    const Reduction compose = composition("compose");
    const auto at = [](int rank, std::size_t i) {
      return static_cast<std::uint32_t>((i + 1) * 2654435761u + static_cast<std::uint32_t>(rank));
    };
    for (const std::size_t count : {1, 100, 70'000}) {
      std::vector<std::uint32_t> data(count), expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = at(world.rank(), i);
        expected[i] = at(0, i);
        for (int rank = 1; rank < rank_count; ++rank) {
          expected[i] = composed(expected[i], at(rank, i));
        }
      }
      world.all_reduce(elements(data), compose).wait();
      EXPECT_EQ(data, expected) << count << " elements on rank " << world.rank();
    }
  });
}

TEST_P(Reductions, hear_on_every_rank_what_a_function_threw) {
  std::atomic<int> heard = 0;
  run_virtual_ranks(rank_count, config_on(GetParam()), [&](Communicator& world) {
    const Reduction bad =
        Reduction::user({"bad", [](auto...) { throw std::runtime_error("no such norm"); }});
    std::vector<float> data(100);
    try {
      world.all_reduce(elements(data), bad).wait();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("user operation bad threw: no such norm"),
                std::string::npos)
          << error.what();
      ++heard;
    }
  });
  EXPECT_EQ(heard, rank_count);
}

/// What the ranks hear if rank 1 calls `odd` where the others call `even`.
void expect_mismatch(const char* hosts, const Reduction& even, const Reduction& odd) {
  std::atomic<int> heard = 0;
  run_virtual_ranks(3, config_on(hosts), [&](Communicator& world) {
    std::vector<std::uint32_t> integers(10);
    std::vector<float> floats(10);
    const Elements data = even.op() == ReduceOp::user ? elements(integers) : elements(floats);
    try {
      world.all_reduce(data, world.rank() == 1 ? odd : even).wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      for (const Reduction& called : {even, odd}) {
        EXPECT_NE(std::string(error.what()).find(describe(called)), std::string::npos)
            << error.what();
      }
      ++heard;
    }
  });
  EXPECT_EQ(heard, 3);
}

TEST_P(Reductions, are_the_same_on_every_rank_down_to_the_factor_and_the_name) {
  expect_mismatch(GetParam(), Reduction::premultiplied_sum(0.1),
                  Reduction::premultiplied_sum(0.1 + 1e-16));
  expect_mismatch(GetParam(), composition("compose"), composition("composed"));
}

INSTANTIATE_TEST_SUITE_P(Hosts, Reductions, testing::Values("", "a,a,b,b,b", "a,b,a,b,a"),
                         [](const auto& hosts) {
                           return hosts.index == 0   ? "one"
                                  : hosts.index == 1 ? "two"
                                                     : "round_robin";
                         });

TEST(Reduction, refuses_a_factor_that_its_sums_cannot_hold) {
  run_virtual_ranks(1, Config(), [](Communicator& world) {
    std::vector<float> floats(1);
    std::vector<double> doubles(1, 2);
    const Reduction huge = Reduction::premultiplied_sum(1e300);
    EXPECT_THROW(world.all_reduce(elements(floats), huge).wait(), Error);
    world.all_reduce(elements(doubles), huge).wait();
    EXPECT_EQ(doubles[0], 2e300);
  });
}

TEST(Reduction, refuses_a_user_operation_without_its_function) {
  run_virtual_ranks(1, Config(), [](Communicator& world) {
    std::vector<float> floats(1);
    EXPECT_THROW(world.all_reduce(elements(floats), ReduceOp::user), Error);
  });
}

}  // namespace
}  // namespace sprat
