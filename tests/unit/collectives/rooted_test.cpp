// Collectives with a root and those of blocks that differ in length, over ranks that are threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat {
namespace {

using namespace std::chrono_literals;
using Counts = std::vector<std::size_t>;

struct RootedLayout {
  const char* name;
  int ranks;
  const char* hosts;  ///< SPRAT_HOST: a comma list by rank.
};

std::ostream& operator<<(std::ostream& out, const RootedLayout& layout) {
  return out << layout.name;
}

const RootedLayout rooted_layouts[] = {
    {"one", 1, ""},
    {"two", 2, ""},
    {"three", 3, ""},
    {"five", 5, ""},
    {"two_hosts_of_two", 4, "a,a,b,b"},
    {"uneven_hosts", 5, "a,b,b,c,c"},
    {"one_rank_per_host", 3, "a,b,c"},
};

/// A float of few bits as bf16.
std::uint16_t bf16_of(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// Counts around the inline limit and the staging windows of 64 KiB.
constexpr std::size_t rooted_counts[] = {0, 1, 7, 1000, 70'001};

class Rooted : public testing::TestWithParam<RootedLayout> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) {
    Config config;
    config.host = GetParam().hosts;
    config.timeout = 60s;
    config.staging_bytes = 64 << 10;
    run_virtual_ranks(GetParam().ranks, config, body);
  }
};

/// Small integers, different for every rank and element: sums are exact in f32.
float input_value(int rank, std::size_t index) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50.0f;
}

std::vector<float> values(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = input_value(rank, first + i);
  }
  return data;
}

std::vector<float> sums(int ranks, std::size_t count, std::size_t first = 0) {
  std::vector<float> data(count);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      data[i] += input_value(rank, first + i);
    }
  }
  return data;
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Counts for every rank: uneven, with a zero; or everything at one rank.
std::vector<Counts> count_tables(int ranks) {
  std::vector<Counts> tables;
  for (const std::size_t count : rooted_counts) {
    Counts uneven, one;
    for (int rank = 0; rank < ranks; ++rank) {
      uneven.push_back(rank % 3 == 1 ? 0 : count + static_cast<std::size_t>(rank));
      one.push_back(rank == ranks / 2 ? count : 0);
    }
    tables.push_back(uneven);
    tables.push_back(one);
  }
  return tables;
}

std::size_t total(const Counts& table) {
  return std::accumulate(table.begin(), table.end(), std::size_t{0});
}

std::span<float> block(std::vector<float>& whole, const Counts& table, int rank) {
  const auto before = table.begin() + rank;
  return std::span(whole).subspan(std::accumulate(table.begin(), before, std::size_t{0}), *before);
}

const Elements nothing{nullptr, 0, DType::f32};

// Other ranks do not know of the root's type, nor does the call that all announce.
TEST_P(Rooted, reduce_gives_the_type_that_the_root_asks_for_now) {
  for (const std::size_t count : rooted_counts) {
    on_ranks([&](Communicator& world) {
      const std::vector<std::uint16_t> in(count, bf16_of(static_cast<float>(world.rank() + 1)));
      const int ranks = world.size();
      const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
      for (int round = 0; round < 3; ++round) {
        std::vector<std::uint16_t> narrow(count);
        std::vector<float> wide(count);
        world
            .reduce({in.data(), count, DType::bf16}, {narrow.data(), count, DType::bf16}, 0,
                    ReduceOp::sum, {.timeout = {}, .blocking = true})
            .wait();
        world
            .reduce({in.data(), count, DType::bf16}, {wide.data(), count, DType::f32}, 0,
                    ReduceOp::sum, {.timeout = {}, .blocking = true})
            .wait();
        if (world.rank() == 0) {
          EXPECT_EQ(narrow, std::vector<std::uint16_t>(count, bf16_of(sum)))
              << count << ", " << round;
          EXPECT_EQ(wide, std::vector<float>(count, sum)) << count << ", " << round;
        }
      }
    });
  }
}

TEST_P(Rooted, reduce_sums_at_every_root_in_place_and_not) {
  on_ranks([](Communicator& world) {
    for (const std::size_t count : rooted_counts) {
      const auto expected = sums(world.size(), count);
      for (int root = 0; root < world.size(); ++root) {
        const auto in = values(world.rank(), count);
        std::vector<float> out(count, -1), same = in;
        const bool here = world.rank() == root;
        world.reduce(elements(in), here ? elements(out) : nothing, root).wait();
        world.reduce(elements(same), here ? elements(same) : nothing, root).wait();
        EXPECT_TRUE(out == (here ? expected : std::vector<float>(count, -1)))
            << "rank " << world.rank() << " root " << root << " count " << count;
        EXPECT_TRUE(same == (here ? expected : in))
            << "rank " << world.rank() << " root " << root << " count " << count;
      }
    }
  });
}

TEST_P(Rooted, reduce_of_16_bit_floats_may_widen_at_the_root) {
  on_ranks([](Communicator& world) {
    const std::vector<bfloat16> in(1000, to_bfloat16(1.0f / 256));
    std::vector<float> out(1000);
    const int root = world.size() - 1;
    world.reduce(elements(in), world.rank() == root ? elements(out) : nothing, root).wait();
    if (world.rank() == root) {
      EXPECT_EQ(out, std::vector<float>(1000, static_cast<float>(world.size()) / 256));
    }
  });
}

TEST_P(Rooted, gather_and_scatter_undo_each_other_at_every_root) {
  on_ranks([](Communicator& world) {
    const auto ranks = static_cast<std::size_t>(world.size());
    for (const std::size_t count : rooted_counts) {
      std::vector<float> expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        append(expected, values(rank, count));
      }
      for (int root = 0; root < world.size(); ++root) {
        const bool here = world.rank() == root;
        const auto part = values(world.rank(), count);
        std::vector<float> whole(here ? ranks * count : 0), back(count);
        world.gather(elements(part), here ? elements(whole) : nothing, root).wait();
        EXPECT_TRUE(whole == (here ? expected : std::vector<float>()))
            << "rank " << world.rank() << " root " << root << " count " << count;
        world.scatter(here ? elements(whole) : nothing, elements(back), root).wait();
        EXPECT_TRUE(back == part) << "rank " << world.rank() << " root " << root << " count "
                                  << count;
      }
    }
  });
}

TEST_P(Rooted, gather_and_scatter_work_in_place_at_the_root) {
  on_ranks([](Communicator& world) {
    const auto ranks = static_cast<std::size_t>(world.size());
    const std::size_t count = 5000;
    const int root = world.size() / 2;
    const bool here = world.rank() == root;
    std::vector<float> whole(here ? ranks * count : count, -1);
    const auto mine = here ? std::span(whole).subspan(count * static_cast<std::size_t>(root), count)
                           : std::span(whole);
    const auto part = values(world.rank(), count);
    std::copy(part.begin(), part.end(), mine.begin());
    world.gather(elements(mine), here ? elements(whole) : nothing, root).wait();
    if (here) {
      std::vector<float> expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        append(expected, values(rank, count));
      }
      EXPECT_TRUE(whole == expected);
    } else {
      std::fill(whole.begin(), whole.end(), -1.0f);
    }
    world.scatter(here ? elements(whole) : nothing, elements(mine), root).wait();
    EXPECT_TRUE(std::equal(mine.begin(), mine.end(), part.begin())) << "rank " << world.rank();
  });
}

TEST_P(Rooted, all_gatherv_puts_parts_one_after_the_other) {
  on_ranks([](Communicator& world) {
    for (const Counts& table : count_tables(world.size())) {
      std::vector<float> expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        append(expected, values(rank, table[rank]));
      }
      const auto part = values(world.rank(), table[world.rank()]);
      std::vector<float> whole(total(table)), same(total(table), -1);
      world.all_gatherv(elements(part), elements(whole), table).wait();
      const auto mine = block(same, table, world.rank());
      std::copy(part.begin(), part.end(), mine.begin());
      world.all_gatherv(elements(mine), elements(same), table).wait();
      EXPECT_TRUE(whole == expected) << "rank " << world.rank() << " total " << total(table);
      EXPECT_TRUE(same == expected) << "rank " << world.rank() << " total " << total(table);
    }
  });
}

TEST_P(Rooted, reduce_scatterv_gives_each_rank_its_block) {
  on_ranks([](Communicator& world) {
    for (const Counts& table : count_tables(world.size())) {
      auto whole = values(world.rank(), total(table));
      auto sum = sums(world.size(), total(table));
      const auto expected = block(sum, table, world.rank());
      std::vector<float> part(table[world.rank()], -1);
      world.reduce_scatterv(elements(std::as_const(whole)), elements(part), table).wait();
      const auto mine = block(whole, table, world.rank());
      world.reduce_scatterv(elements(std::as_const(whole)), elements(mine), table).wait();
      EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin(), expected.end()))
          << "rank " << world.rank() << " total " << total(table);
      EXPECT_TRUE(std::equal(mine.begin(), mine.end(), expected.begin(), expected.end()))
          << "rank " << world.rank() << " total " << total(table);
    }
  });
}

TEST_P(Rooted, gatherv_and_scatterv_need_counts_on_the_root_only) {
  on_ranks([](Communicator& world) {
    for (const Counts& table : count_tables(world.size())) {
      std::vector<float> expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        append(expected, values(rank, table[rank]));
      }
      for (int root = 0; root < world.size(); ++root) {
        const bool here = world.rank() == root;
        const auto part = values(world.rank(), table[world.rank()]);
        std::vector<float> whole(here ? total(table) : 0), back(part.size(), -1);
        const auto known = here ? std::span(table) : std::span<const std::size_t>();
        world.gatherv(elements(part), here ? elements(whole) : nothing, known, root).wait();
        EXPECT_TRUE(whole == (here ? expected : std::vector<float>()))
            << "rank " << world.rank() << " root " << root << " total " << total(table);
        world.scatterv(here ? elements(whole) : nothing, elements(back), known, root).wait();
        EXPECT_TRUE(back == part) << "rank " << world.rank() << " root " << root << " total "
                                  << total(table);
      }
    }
  });
}

TEST_P(Rooted, all_to_allv_brings_every_block_to_its_rank) {
  on_ranks([](Communicator& world) {
    for (const std::size_t count : rooted_counts) {
      const auto length = [count](int from, int to) {
        return (from + to) % 3 == 2 ? 0 : count + static_cast<std::size_t>(from + 2 * to);
      };
      Counts leaving, coming;
      std::vector<float> in, expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        leaving.push_back(length(world.rank(), rank));
        coming.push_back(length(rank, world.rank()));
        append(in, values(world.rank(), leaving.back(), static_cast<std::size_t>(rank)));
        append(expected, values(rank, coming.back(), static_cast<std::size_t>(world.rank())));
      }
      std::vector<float> out(expected.size(), -1);
      world.all_to_allv(elements(std::as_const(in)), elements(out), leaving, coming).wait();
      EXPECT_TRUE(out == expected) << "rank " << world.rank() << " count " << count;
    }
  });
}

TEST_P(Rooted, shared_memory_and_many_in_flight) {
  on_ranks([](Communicator& world) {
    const std::size_t count = 20'000;
    const auto ranks = static_cast<std::size_t>(world.size());
    Memory part = allocate<float>(count), whole = allocate<float>(ranks * count);
    const auto mine = values(world.rank(), count);
    std::copy(mine.begin(), mine.end(), part.as<float>().begin());
    std::vector<Work> works;
    std::vector<float> sum(count);
    for (int root = 0; root < world.size(); ++root) {
      works.push_back(world.gather(elements(part.as<float>()), elements(whole.as<float>()), root));
      works.push_back(world.reduce(elements(part.as<float>()), elements(sum), root));
    }
    for (Work& work : works) {
      work.wait();
    }
    EXPECT_TRUE(sum == sums(world.size(), count)) << "rank " << world.rank();
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto got = whole.as<float>().subspan(static_cast<std::size_t>(rank) * count, count);
      EXPECT_TRUE(std::ranges::equal(got, values(rank, count))) << "rank " << world.rank();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(over_layouts, Rooted, testing::ValuesIn(rooted_layouts),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(RootedContract, wrong_calls_throw_before_anything_moves) {
  Config config;
  config.timeout = 20s;
  run_virtual_ranks(2, config, [](Communicator& world) {
    std::vector<float> four(4), eight(8), other(8);
    std::vector<double> doubles(8);
    const Counts two_six = {2, 6}, six_two = {6, 2}, three = {1, 2, 1}, huge = {~std::size_t{0}, 9};
    const auto mine = elements(std::span(four).first(world.rank() == 0 ? 2 : 4));
    EXPECT_THROW(world.reduce(elements(four), elements(four), 2), Error);
    EXPECT_THROW(world.gather(elements(four), elements(eight), -1), Error);
    EXPECT_THROW(world.scatter(elements(eight), Elements{nullptr, 4, DType::f32}, 0), Error);
    if (world.rank() == 0) {
      EXPECT_THROW(world.reduce(elements(four), elements(eight), 0), Error);
      EXPECT_THROW(world.reduce(elements(four), nothing, 0), Error);
      EXPECT_THROW(world.gather(elements(four), elements(four), 0), Error);
      EXPECT_THROW(world.gather(elements(four), elements(doubles), 0), Error);
      EXPECT_THROW(world.scatter(elements(eight), elements(std::span(eight).subspan(1, 4)), 0),
                   Error);
      EXPECT_THROW(world.gatherv(elements(four), elements(eight), two_six, 0), Error);
      EXPECT_THROW(world.scatterv(elements(eight), elements(four), three, 0), Error);
    }
    EXPECT_THROW(world.all_gatherv(elements(four), elements(eight), two_six), Error);
    EXPECT_THROW(world.all_gatherv(elements(four), elements(eight), three), Error);
    EXPECT_THROW(world.all_gatherv(mine, elements(eight), huge), Error);
    EXPECT_THROW(world.reduce_scatterv(elements(four), mine, two_six), Error);
    EXPECT_THROW(world.all_to_allv(elements(eight), elements(eight), two_six, two_six), Error);
    EXPECT_THROW(world.all_to_allv(elements(eight), elements(other), two_six, six_two), Error);
    EXPECT_THROW(world.all_to_allv(elements(eight), elements(doubles), two_six, two_six), Error);
    world.barrier();
  });
}

}  // namespace
}  // namespace sprat
