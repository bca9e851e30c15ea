// Layouts of ranks: bijective, partitioned, and where SMP documents them, SMP's.
#include "sprat/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/comm/base/refused.hpp"

namespace sprat::layout_test {
namespace {

constexpr std::array placements = {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"};

/// Every layout of at most `largest` ranks.
void for_each_layout(int largest, const std::function<void(const ParallelLayout&)>& check) {
  for (int world = 1; world <= largest; ++world) {
    for (int shard = 1; shard <= world; ++shard) {
      for (int pipeline = 1; pipeline <= world / shard; ++pipeline) {
        for (int tensor = 1; tensor <= world / shard / pipeline; ++tensor) {
          for (int context = 1; context <= shard; ++context) {
            if (world % (shard * pipeline * tensor) != 0 || shard % context != 0) {
              continue;
            }
            for (const char* placement : placements) {
              check(ParallelLayout({.world = world,
                                    .shard = shard,
                                    .context = context,
                                    .pipeline = pipeline,
                                    .tensor = tensor,
                                    .placement = placement}));
            }
          }
        }
      }
    }
  }
}

std::string named(const ParallelLayout& layout) {
  const ParallelDegrees& d = layout.degrees();
  std::string out = d.placement;
  for (const int degree : {d.world, d.replica, d.shard, d.context, d.pipeline, d.tensor}) {
    out += ' ' + std::to_string(degree);
  }
  return out;
}

/// A coordinate by the bits of Axes.
std::array<int, 5> by_axis(const ParallelLayout& layout, int rank) {
  const ParallelCoordinate at = layout.coordinate(rank);
  return {at.replica, at.shard / layout.degrees().context, at.context, at.pipeline, at.tensor};
}

std::vector<Axes> all_axes() {
  std::vector<Axes> all;
  for (int bits = 0; bits < 32; ++bits) {
    all.push_back(static_cast<Axes>(bits));
  }
  return all;
}

TEST(ParallelLayout, ranks_and_coordinates_are_one_to_one) {
  for_each_layout(24, [](const ParallelLayout& layout) {
    std::set<std::array<int, 5>> seen;
    for (int rank = 0; rank < layout.world(); ++rank) {
      EXPECT_EQ(layout.rank(layout.coordinate(rank)), rank) << named(layout);
      seen.insert(by_axis(layout, rank));
    }
    EXPECT_EQ(seen.size(), std::size_t(layout.world())) << named(layout);
  });
}

TEST(ParallelLayout, the_right_most_letter_varies_fastest) {
  for_each_layout(24, [](const ParallelLayout& layout) {
    const ParallelDegrees& d = layout.degrees();
    for (int rank = 0; rank < layout.world(); ++rank) {
      const ParallelCoordinate at = layout.coordinate(rank);
      int expected = 0;
      for (const char letter : d.placement) {
        const int place = letter == 'P'   ? at.pipeline
                          : letter == 'T' ? at.tensor
                                          : at.replica * d.shard + at.shard;
        const int degree = letter == 'P'   ? d.pipeline
                           : letter == 'T' ? d.tensor
                                           : d.replica * d.shard;
        expected = expected * degree + place;
      }
      EXPECT_EQ(rank, expected) << named(layout);
      EXPECT_EQ(at.context, at.shard % d.context) << named(layout);
    }
  });
}

TEST(ParallelLayout, a_group_is_the_ranks_that_differ_along_its_axes_alone) {
  for_each_layout(12, [](const ParallelLayout& layout) {
    std::vector<std::array<int, 5>> at;
    for (int rank = 0; rank < layout.world(); ++rank) {
      at.push_back(by_axis(layout, rank));
    }
    for (const Axes axes : all_axes()) {
      for (int rank = 0; rank < layout.world(); ++rank) {
        std::vector<int> expected;
        for (int other = 0; other < layout.world(); ++other) {
          bool same = true;
          for (int bit = 0; bit < 5; ++bit) {
            same &= ((int(axes) >> bit) & 1) != 0 || at[other][bit] == at[rank][bit];
          }
          if (same) {
            expected.push_back(other);
          }
        }
        const std::vector<int> group = layout.group(axes, rank);
        ASSERT_EQ(group, expected) << named(layout) << ", rank " << rank << ' ' << describe(axes);
        ASSERT_EQ(group[layout.rank_in(axes, rank)], rank) << named(layout);
      }
    }
  });
}

TEST(ParallelLayout, groups_partition_the_world_in_equal_rising_parts) {
  for_each_layout(24, [](const ParallelLayout& layout) {
    for (const Axes axes : {Axes::none, Axes::replica, Axes::shard, Axes::context, Axes::pipeline,
                            Axes::tensor, Axes::data, Axes::model, ~Axes::pipeline}) {
      std::vector<int> seen;
      int last_first = -1;
      for (const std::vector<int>& group : layout.groups(axes)) {
        ASSERT_EQ(group.size(), std::size_t(layout.size(axes))) << named(layout);
        ASSERT_GT(group.front(), last_first) << named(layout);
        last_first = group.front();
        seen.insert(seen.end(), group.begin(), group.end());
      }
      std::ranges::sort(seen);
      std::vector<int> world(layout.world());
      std::iota(world.begin(), world.end(), 0);
      ASSERT_EQ(seen, world) << named(layout) << ' ' << describe(axes);
    }
  });
}

TEST(ParallelLayout, along_one_axis_a_rank_stands_at_its_coordinate) {
  for_each_layout(24, [](const ParallelLayout& layout) {
    for (int rank = 0; rank < layout.world(); ++rank) {
      const ParallelCoordinate at = layout.coordinate(rank);
      const ParallelCoordinate stands = {.replica = layout.rank_in(Axes::replica, rank),
                                         .shard = layout.rank_in(Axes::shard, rank),
                                         .context = layout.rank_in(Axes::context, rank),
                                         .pipeline = layout.rank_in(Axes::pipeline, rank),
                                         .tensor = layout.rank_in(Axes::tensor, rank)};
      ASSERT_EQ(stands, at) << named(layout) << ", rank " << rank;
    }
  });
}

TEST(ParallelLayout, sizes_keep_the_identities_of_smp) {
  for_each_layout(24, [](const ParallelLayout& layout) {
    const int pp = layout.size(Axes::pipeline), tp = layout.size(Axes::tensor);
    const int rdp = layout.size(Axes::data), dp = layout.size(~Axes::pipeline);
    const std::vector<int> products = {pp * tp * rdp, pp * dp, layout.size(Axes::model) * rdp};
    EXPECT_EQ(products, std::vector<int>(3, layout.world())) << named(layout);
  });
}

TEST(ParallelLayout, each_share_of_a_batch_is_read_by_one_group_of_model_and_context) {
  for_each_layout(24, [](const ParallelLayout& layout) {
    std::set<int> shares;
    for (const std::vector<int>& group : layout.groups(Axes::model | Axes::context)) {
      for (const int rank : group) {
        ASSERT_EQ(layout.data_share(rank), layout.data_share(group.front())) << named(layout);
      }
      shares.insert(layout.data_share(group.front()));
    }
    ASSERT_EQ(shares.size(), std::size_t(layout.data_shares())) << named(layout);
    ASSERT_EQ(*shares.rbegin(), layout.data_shares() - 1) << named(layout);
  });
}

TEST(ParallelLayout, eight_ranks_stand_where_the_table_of_smp_has_them) {
  using Columns = std::vector<std::array<int, 3>>;  // reduced data, pipeline, tensor rank
  const auto columns = [](const char* placement) {
    const ParallelLayout layout(
        {.world = 8, .shard = 1, .pipeline = 2, .tensor = 2, .placement = placement});
    Columns out;
    for (int rank = 0; rank < 8; ++rank) {
      const ParallelCoordinate at = layout.coordinate(rank);
      out.push_back({at.replica, at.pipeline, at.tensor});
    }
    return out;
  };
  EXPECT_EQ(
      columns("DPT"),
      (Columns{
          {0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}}));
  EXPECT_EQ(
      columns("PTD"),
      (Columns{
          {0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {1, 0, 1}, {0, 1, 0}, {1, 1, 0}, {0, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(columns("cluster"), columns("DPT"));
  EXPECT_EQ(columns("spread"), columns("TPD"));
}

TEST(ParallelLayout, cluster_and_spread_put_a_model_near_and_far) {
  using Groups = std::vector<std::vector<int>>;
  const ParallelLayout cluster({.world = 8, .pipeline = 2, .placement = "cluster"});
  EXPECT_EQ(cluster.groups(Axes::model), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(cluster.groups(~Axes::pipeline), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  const ParallelLayout spread({.world = 8, .pipeline = 2, .placement = "spread"});
  EXPECT_EQ(spread.groups(Axes::model), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(spread.groups(~Axes::pipeline), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(ParallelLayout, sharded_data_with_tensor_parallelism_is_as_aws_draws_it) {
  const ParallelLayout layout({.world = 32, .shard = 4, .tensor = 4});
  using Ranks = std::vector<int>;
  EXPECT_EQ(layout.group(Axes::tensor, 5), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(layout.group(Axes::data, 0), (Ranks{0, 4, 8, 12, 16, 20, 24, 28}));
  EXPECT_EQ(layout.group(Axes::shard, 0), (Ranks{0, 4, 8, 12}));
  EXPECT_EQ(layout.group(Axes::shard, 16), (Ranks{16, 20, 24, 28}));
  EXPECT_EQ(layout.group(Axes::replica, 4), (Ranks{4, 20}));
}

TEST(ParallelLayout, batches_have_as_many_shares_as_aws_counts) {
  // 1536 GPUs with 4096 tokens a sample; with tensor parallelism over 8, 4 samples a group.
  const ParallelLayout sharded({.world = 1536, .shard = 32});
  EXPECT_EQ(sharded.data_shares() * 4096, 6291456);
  const ParallelLayout tensor({.world = 1536, .shard = 32, .tensor = 8});
  EXPECT_EQ(tensor.data_shares() * 4 * 4096, 3145728);
}

TEST(ParallelLayout, degrees_left_out_take_what_the_others_leave) {
  struct Case {
    ParallelDegrees given;
    int replica, shard;
  };
  const std::vector<Case> cases = {
      {{.world = 24}, 1, 24},
      {{.world = 24, .pipeline = 2, .tensor = 3}, 1, 4},
      {{.world = 24, .shard = 3}, 8, 3},
      {{.world = 24, .replica = 3}, 3, 8},
      {{.world = 24, .replica = 2, .shard = 6, .pipeline = 2}, 2, 6},
  };
  for (const Case& one : cases) {
    const ParallelLayout layout(one.given);
    EXPECT_EQ(layout.degrees().replica, one.replica) << named(layout);
    EXPECT_EQ(layout.degrees().shard, one.shard) << named(layout);
  }
}

TEST(ParallelLayout, what_does_not_fit_is_refused_with_the_nearest_that_does) {
  struct Case {
    ParallelDegrees given;
    const char* message;
  };
  const std::vector<Case> cases = {
      {{.world = 0}, "the world has 0 ranks; it has 1 or more"},
      {{.world = 4, .tensor = 0}, "the tensor degree is 0; it is 1 or more"},
      {{.world = 4, .shard = -1}, "the shard degree is -1; it is 0 or more"},
      {{.world = 12, .tensor = 5},
       "the tensor degree 5 does not divide the 12 ranks of the world; the nearest that does is 4 "
       "or 6"},
      {{.world = 12, .tensor = 16},
       "the tensor degree 16 does not divide the 12 ranks of the world; the nearest that does is "
       "12"},
      {{.world = 12, .pipeline = 4, .tensor = 2},
       "the pipeline degree 4 does not divide the 6 ranks that tensor degree 2 leaves of 12; the "
       "nearest that does is 3 or 6"},
      {{.world = 24, .shard = 5, .pipeline = 2, .tensor = 2},
       "the shard degree 5 does not divide the 6 data ranks that pipeline degree 2 and tensor "
       "degree 2 leave of 24; the nearest that does is 3 or 6"},
      {{.world = 8, .replica = 3},
       "the replica degree 3 does not divide the 8 data ranks that pipeline degree 1 and tensor "
       "degree 1 leave of 8; the nearest that does is 2 or 4"},
      {{.world = 8, .replica = 2, .shard = 2},
       "replica degree 2 times shard degree 2 is not the 8 data ranks that pipeline degree 1 and "
       "tensor degree 1 leave of 8; leave the replica degree out, or make it 4"},
      {{.world = 8, .shard = 4, .context = 8},
       "the context degree 8 does not divide the shard degree 4; the nearest that does is 4"},
      {{.world = 8, .placement = "DPP"},
       "the placement \"DPP\" is neither \"cluster\" (DPT) nor \"spread\" (TPD) nor a permutation "
       "of D, P and T"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(message_of([&] { ParallelLayout{one.given}; }), one.message);
  }
  const ParallelLayout layout({.world = 4, .shard = 2, .context = 2});
  EXPECT_EQ(message_of([&] { layout.coordinate(4); }),
            "rank 4 is none of the layout's; it has 0 to 3");
  EXPECT_EQ(message_of([&] { layout.rank({.pipeline = 1}); }),
            "pipeline stage 1 is none of the layout's; it has 0 to 0");
  EXPECT_EQ(message_of([&] { layout.rank({.shard = 1}); }),
            "context 0 is not the remainder of shard 1 by the context degree 2");
}

TEST(ParallelLayout, sets_of_axes_are_named_by_what_they_hold) {
  EXPECT_EQ(describe(Axes::none), "none");
  EXPECT_EQ(describe(Axes::world), "data+pipeline+tensor");
  EXPECT_EQ(describe(~Axes::pipeline), "data+tensor");
  EXPECT_EQ(describe(Axes::replica | Axes::context), "replica+context");
  EXPECT_EQ(describe(Axes::shard), "shard");
}

TEST(SplitAlong, gives_each_rank_the_communicator_of_its_group) {
  const ParallelLayout layout({.world = 8, .shard = 2, .pipeline = 2, .placement = "PTD"});
  run_virtual_ranks(8, Config{}, [&](Communicator& world) {
    for (const Axes axes :
         {Axes::shard, Axes::replica, Axes::pipeline, Axes::tensor, ~Axes::pipeline, Axes::world}) {
      Communicator group = split_along(world, layout, axes);
      const std::vector<int> expected = layout.group(axes, world.rank());
      ASSERT_EQ(group.size(), int(expected.size())) << "rank " << world.rank();
      EXPECT_EQ(group.rank(), layout.rank_in(axes, world.rank())) << "rank " << world.rank();
      std::vector<int> members(expected.size(), -1);
      const std::vector<int> self{world.rank()};
      group.all_gather(elements(self), elements(members)).wait();
      EXPECT_EQ(members, expected) << "rank " << world.rank() << ' ' << describe(axes);
    }
  });
}

TEST(SplitAlong, refuses_a_layout_of_another_size) {
  const ParallelLayout layout({.world = 4});
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    EXPECT_EQ(message_of([&] { split_along(world, layout, Axes::shard); }),
              "a layout of 4 ranks does not fit a communicator of 2");
  });
}

}  // namespace
}  // namespace sprat::layout_test
