// Reductions in any order between hosts: each contribution counts once, every rank has the same
// bits. And communicators that are told to choose by other rules.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "collectives/plan/tuning.hpp"
#include "collectives/record/flight_record.hpp"
#include "sprat/communicator.hpp"

namespace sprat {
namespace {

using namespace std::chrono_literals;

constexpr int world_size = 6;

Config config_of_hosts(const char* hosts) {
  Config config;
  config.host = hosts;
  config.order = ReduceOrder::any;
  config.algorithm = "all_reduce ring; reduce_scatter ring";
  config.timeout = 60s;
  return config;
}

/// Not a sum that every order rounds alike.
std::vector<float> numbers_of(int rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = 1.0f / static_cast<float>(1 + (i * 31 + static_cast<std::size_t>(rank) * 17) % 1009);
  }
  return data;
}

float sum_of_all_at(std::size_t index) {
  double sum = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    sum += 1.0f / static_cast<float>(1 + (index * 31 + static_cast<std::size_t>(rank) * 17) % 1009);
  }
  return static_cast<float>(sum);
}

/// Elements that are further from the sum than its roundings can take them.
std::size_t count_unlike(std::span<const float> got, std::size_t first) {
  constexpr float unit = 0x1p-24f;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float sum = sum_of_all_at(first + i);
    wrong += std::abs(got[i] - sum) > world_size * unit * sum ? 1 : 0;
  }
  return wrong;
}

class AnyOrder : public testing::TestWithParam<const char*> {};

TEST_P(AnyOrder, takes_each_contribution_once_and_gives_all_ranks_the_same) {
  run_virtual_ranks(world_size, config_of_hosts(GetParam()), [](Communicator& world) {
    for (const std::size_t count : {1ul, 500ul, 70'000ul, 1'000'003ul}) {
      std::vector<float> same = numbers_of(world.rank(), count), out(count),
                         all(count * world_size);
      world.all_reduce(elements(std::as_const(same)), elements(out)).wait();
      EXPECT_EQ(count_unlike(out, 0), 0u) << "rank " << world.rank() << " count " << count;
      world.all_reduce(elements(same)).wait();
      EXPECT_EQ(std::memcmp(same.data(), out.data(), count * sizeof(float)), 0) << count;
      world.all_gather(elements(std::as_const(out)), elements(all)).wait();
      for (int rank = 0; rank < world_size; ++rank) {
        EXPECT_EQ(std::memcmp(&all[rank * count], out.data(), count * sizeof(float)), 0)
            << "ranks " << rank << " and " << world.rank() << " count " << count;
      }
    }
  });
}

TEST_P(AnyOrder, gives_each_rank_its_block) {
  run_virtual_ranks(world_size, config_of_hosts(GetParam()), [](Communicator& world) {
    for (const std::size_t count : {1ul, 70'000ul, 300'001ul}) {
      const std::vector<float> in = numbers_of(world.rank(), count * world_size);
      std::vector<float> out(count);
      world.reduce_scatter(elements(in), elements(out)).wait();
      EXPECT_EQ(count_unlike(out, world.rank() * count), 0u)
          << "rank " << world.rank() << " count " << count;
    }
  });
}

TEST_P(AnyOrder, multiplies_each_contribution_once) {
  run_virtual_ranks(world_size, config_of_hosts(GetParam()), [](Communicator& world) {
    std::vector<float> data(2000, static_cast<float>(world.rank() + 1));
    world.all_reduce(elements(data), Reduction::premultiplied_sum(0.5)).wait();
    EXPECT_EQ(std::ranges::count(data, 10.5f), 2000) << "rank " << world.rank();
  });
}

/// A float that is exact in bf16, as its bits.
std::uint16_t bfloat16_of(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// The first host of a line of hosts may send one rank's 16 bits, the others send f32 partials.
TEST_P(AnyOrder, takes_narrow_contributions_as_they_are) {
  run_virtual_ranks(world_size, config_of_hosts(GetParam()), [](Communicator& world) {
    const std::uint16_t mine = bfloat16_of(static_cast<float>(world.rank() + 1));
    for (const std::size_t count : {5ul, 150'000ul}) {
      for (const bool halved : {false, true}) {
        const Reduction op = halved ? Reduction::premultiplied_sum(0.5) : ReduceOp::sum;
        const std::uint16_t sum = bfloat16_of(halved ? 10.5f : 21.0f);
        std::vector<std::uint16_t> data(count, mine);
        world.all_reduce({data.data(), count, DType::bf16}, op).wait();
        EXPECT_EQ(std::ranges::count(data, sum), count) << "rank " << world.rank();
        std::vector<std::uint16_t> whole(count * world_size, mine), part(count);
        world
            .reduce_scatter({whole.data(), whole.size(), DType::bf16},
                            {part.data(), count, DType::bf16}, op)
            .wait();
        EXPECT_EQ(std::ranges::count(part, sum), count) << "rank " << world.rank();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, AnyOrder,
                         testing::Values("", "a,a,a,b,b,b", "a,b,c,a,b,c", "a,b,b,c,c,c",
                                         "a,b,c,d,e,f"));

std::string last_algorithm(Communicator& world) {
  for (const collectives::FlightRecord& record : collectives::flight_records_of(getpid())) {
    if (record.rank == world.rank()) {
      return record.communicators.at(0).operations.back().algorithm;
    }
  }
  return "no record";
}

TEST(Rules, that_are_followed_from_a_call_on_replace_remembered_plans) {
  Config config;
  config.timeout = 60s;
  run_virtual_ranks(2, config, [](Communicator& world) {
    const auto call = [&world] {
      std::vector<float> data(8, 1.0f);
      world.all_reduce(elements(data), ReduceOp::sum, {.timeout = {}, .blocking = true}).wait();
      EXPECT_EQ(data, std::vector<float>(8, 2.0f));
      return last_algorithm(world);
    };
    call();
    EXPECT_EQ(call(), "one_shot");
    collectives::follow(world,
                        collectives::parse_rules("all_reduce direct; barrier dissemination"));
    EXPECT_EQ(call(), "direct");
    EXPECT_EQ(call(), "direct");
  });
}

}  // namespace
}  // namespace sprat
