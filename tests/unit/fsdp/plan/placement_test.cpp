// The placement table and what is read from it.
#include "fsdp/plan/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sprat::fsdp {
namespace {

TEST(Sharding, degree_chooses_the_row) {
  struct Case {
    int ranks, degree;
    const char* name;
    int shards;
  };
  for (const Case& one :
       {Case{1, 1, "ddp", 1}, Case{4, 1, "ddp", 1}, Case{4, 2, "hsdp", 2}, Case{4, 4, "zero3", 4},
        Case{6, 3, "hsdp", 3}, Case{7, 7, "zero3", 7}, Case{4, 0, "zero3", 4}}) {
    const Sharding sharding = choose_sharding(one.ranks, "", one.degree);
    EXPECT_STREQ(sharding.strategy->name, one.name) << one.ranks << ", degree " << one.degree;
    EXPECT_EQ(sharding.shards, one.shards);
    EXPECT_EQ(sharding.ranks(), one.ranks);
  }
}

std::string placement_refusal(int ranks, const std::string& strategy, int degree) {
  try {
    choose_sharding(ranks, strategy, degree);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Sharding, every_row_is_chosen_by_name) {
  for (const Strategy& strategy : all_strategies()) {
    EXPECT_EQ(choose_sharding(4, strategy.name, 0).strategy, &strategy);
  }
  EXPECT_EQ(choose_sharding(8, "hfsdp", 2).replicas, 4);
  EXPECT_EQ(placement_refusal(8, "zero9", 0),
            "there is no strategy \"zero9\"; there are: ddp, zero1, zero2, zero3, hsdp, hfsdp");
}

TEST(Sharding, degrees_that_do_not_fit_are_refused_with_those_that_do) {
  for (const int degree : {-2, 5, 8, 24}) {
    EXPECT_EQ(placement_refusal(12, "", degree),
              "hybrid_shard_degree " + std::to_string(degree) +
                  " does not divide the 12 ranks of the world; allowed: 0, 1, 2, 3, 4, 6, 12 (0: "
                  "as many as the strategy takes)");
  }
  EXPECT_EQ(placement_refusal(4, "zero2", 2),
            "strategy \"zero2\" has a hybrid_shard_degree of 4 on 4 ranks, not 2; leave it 0, or "
            "choose hsdp or hfsdp");
}

template <class Body>
void for_every_row(Body body) {
  for (const int ranks : {1, 2, 4, 6, 12}) {
    for (const Strategy& strategy : all_strategies()) {
      for (const int degree : allowed_degrees(ranks)) {
        if (placement_refusal(ranks, strategy.name, degree).empty()) {
          body(choose_sharding(ranks, strategy.name, degree));
        }
      }
    }
  }
}

TEST(Sharding, ranks_and_pairs_of_part_and_copy_are_one_to_one) {
  for_every_row([](const Sharding& sharding) {
    std::set<std::pair<int, int>> seen;
    for (int rank = 0; rank < sharding.ranks(); ++rank) {
      const OptimizerPart part = optimizer_part(sharding, rank);
      EXPECT_EQ(part.parts * part.copies, sharding.ranks());
      EXPECT_TRUE(part.part >= 0 && part.part < part.parts);
      EXPECT_TRUE(part.copy >= 0 && part.copy < part.copies);
      seen.insert({part.part, part.copy});
    }
    EXPECT_EQ(static_cast<int>(seen.size()), sharding.ranks());
  });
}

/// Follows a gradient through the hops, and updated parameters back, as ranges of a unit.
TEST(Sharding, hops_end_at_the_part_and_refreshes_at_what_is_kept) {
  for_every_row([](const Sharding& sharding) {
    const int padded = sharding.ranks() * 12;
    for (int rank = 0; rank < sharding.ranks(); ++rank) {
      const int coordinates[2] = {rank / sharding.shards, rank % sharding.shards};
      int offset = 0, count = padded, summed = 1;
      for (const Hop& hop : reduction_hops(sharding)) {
        summed *= sharding.size(hop.axis);
        if (hop.scatters) {
          count /= sharding.size(hop.axis);
          offset += count * coordinates[hop.axis];
        }
      }
      EXPECT_EQ(summed, sharding.ranks()) << "every rank's gradient is in the sum";
      const OptimizerPart part = optimizer_part(sharding, rank);
      EXPECT_EQ(count, padded / part.parts) << sharding.strategy->name;
      EXPECT_EQ(offset, padded / part.parts * part.part) << sharding.strategy->name;
      for (const Axis axis : refresh_axes(sharding)) {
        offset -= count * coordinates[axis];
        count *= sharding.size(axis);
      }
      const bool gathers = gathers_parameters(sharding);
      EXPECT_EQ(count, padded / (gathers ? sharding.shards : 1)) << sharding.strategy->name;
      EXPECT_EQ(offset, gathers ? count * coordinates[shard_axis] : 0) << sharding.strategy->name;
    }
  });
}

TEST(Sharding, kept_bytes_an_element_are_those_of_the_table) {
  // Of docs/fsdp.md, with AdamW: in 16 bits 2 + 4 + 12, in f32 4 + 4 + 8.
  struct Case {
    const char* strategy;
    int degree;
    double narrow, wide;
  };
  constexpr double n = 8, s = 2;
  for (const Case& one :
       {Case{"ddp", 0, 18, 16}, Case{"zero1", 0, 6 + 12 / n, 8 + 8 / n},
        Case{"zero2", 0, 2 + 16 / n, 4 + 12 / n}, Case{"zero3", 0, 18 / n, 16 / n},
        Case{"hsdp", 2, 18 / s, 16 / s}, Case{"hfsdp", 2, 6 / s + 12 / n, 8 / s + 8 / n}}) {
    constexpr std::size_t padded = 8 * 1024 * 3;
    const Sharding sharding = choose_sharding(8, one.strategy, one.degree);
    EXPECT_EQ(kept_bytes(sharding, padded, DType::bf16, 2).total(), one.narrow * padded)
        << one.strategy;
    EXPECT_EQ(kept_bytes(sharding, padded, DType::f32, 2).total(), one.wide * padded)
        << one.strategy;
  }
}

TEST(HostOrder, ranks_of_a_host_become_neighbours_in_their_old_order) {
  EXPECT_EQ(host_order({0, 0, 1, 1}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(host_order({0, 1, 0, 1}), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(host_order({2, 0, 1, 2, 0, 1}), (std::vector<int>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(host_order({}), std::vector<int>{});
}

TEST(HostOrder, a_communicator_is_put_in_that_order) {
  Config config;
  config.host = "a,b,a,b";  // by rank
  run_virtual_ranks(4, config, [](Communicator& world) {
    const Communicator ordered = order_by_host(world);
    EXPECT_EQ(ordered.rank(),
              (std::vector<int>{0, 2, 1, 3})[static_cast<std::size_t>(world.rank())]);
    EXPECT_EQ(ordered.hosts(), (std::vector<int>{0, 0, 1, 1}));
  });
}

}  // namespace
}  // namespace sprat::fsdp
