// Every kind of schedule in virtual time, against makespans and peaks that were computed in exact
// fractions. All times are dyadic unless said, so doubles hold them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "mp/schedule.hpp"
#include "mp/simulate.hpp"

namespace sprat::mp {
namespace {

namespace goldens {

Timeline played(const Schedule& schedule, const PipelineShape& shape, StageCosts rank,
                double latency = 0) {
  rank.forward /= shape.stages_per_rank;
  rank.backward_input /= shape.stages_per_rank;
  rank.backward_weight /= shape.stages_per_rank;
  PipelineCosts costs = uniform_costs(schedule, rank);
  costs.latency = latency;
  return simulate(schedule, costs);
}

Timeline played(const std::string& kind, const PipelineShape& shape, const StageCosts& rank = {},
                double latency = 0) {
  return played(make_schedule(schedule_named(kind), shape), shape, rank, latency);
}

std::string text_of(const std::string& kind, const PipelineShape& shape) {
  return kind + ", p " + std::to_string(shape.ranks) + ", m " + std::to_string(shape.microbatches) +
         ", v " + std::to_string(shape.stages_per_rank) + ", active " +
         std::to_string(shape.active_microbatches);
}

/// A bubble is one sum of m spans a rank, a product and a quotient.
double bubble_error(const PipelineShape& shape) {
  return 4.0 * shape.ranks * shape.microbatches * std::numeric_limits<double>::epsilon();
}

void expect_bubble(const Timeline& made, const PipelineShape& shape, double work) {
  EXPECT_NEAR(made.bubble, 1 - work / made.makespan, bubble_error(shape));
}

std::vector<int> peaks_of(const Timeline& made) {
  std::vector<int> peaks;
  for (const RankUse& use : made.ranks) {
    peaks.push_back(use.peak_microbatches);
  }
  return peaks;
}

struct Golden {
  int ranks, microbatches, other;  ///< other: stages a rank, or active micro-batches.
  double makespan;
  std::vector<int> peaks = {};
};

TEST(PipelineGoldens, gpipe_and_1f1b_differ_only_in_what_they_hold) {
  for (const Golden& golden : {Golden{2, 2, 1, 9},
                               {2, 4, 1, 15},
                               {2, 8, 1, 27},
                               {4, 4, 1, 21},
                               {4, 8, 1, 33},
                               {4, 16, 1, 57},
                               {8, 8, 1, 45},
                               {8, 32, 1, 117}}) {
    const PipelineShape shape{.ranks = golden.ranks, .microbatches = golden.microbatches};
    for (const char* kind : {"gpipe", "1f1b"}) {
      SCOPED_TRACE(text_of(kind, shape));
      const Timeline made = played(kind, shape);
      EXPECT_EQ(made.makespan, golden.makespan);
      EXPECT_NEAR(made.bubble,
                  double(shape.ranks - 1) / double(shape.microbatches + shape.ranks - 1),
                  bubble_error(shape));
      for (int rank = 0; rank < shape.ranks; ++rank) {
        const bool all = std::string("gpipe") == kind;
        EXPECT_EQ(made.ranks[std::size_t(rank)].peak_microbatches,
                  all ? shape.microbatches : std::min(shape.ranks - rank, shape.microbatches))
            << "rank " << rank;
      }
    }
  }
}

TEST(PipelineGoldens, stages_in_turns_divide_the_bubble_and_hold_more) {
  for (const Golden& golden : {Golden{2, 4, 2, 13.5, {5, 3}},
                               {4, 8, 2, 28.5, {11, 9, 7, 5}},
                               {4, 16, 2, 52.5},
                               {4, 8, 4, 26.25, {19, 17, 15, 13}},
                               {8, 32, 2, 106.5},
                               {8, 32, 4, 101.25}}) {
    const PipelineShape shape{.ranks = golden.ranks,
                              .microbatches = golden.microbatches,
                              .stages_per_rank = golden.other};
    SCOPED_TRACE(text_of("virtual_stages", shape));
    const Timeline made = played("virtual_stages", shape);
    EXPECT_EQ(made.makespan, golden.makespan);
    expect_bubble(made, shape, 3 * shape.microbatches);
    if (!golden.peaks.empty()) {
      EXPECT_EQ(peaks_of(made), golden.peaks);
    }
  }
}

TEST(PipelineGoldens, zero_bubble_h1_holds_as_many_as_ranks_everywhere) {
  for (const Golden& golden :
       {Golden{2, 4, 1, 13}, {4, 8, 1, 27}, {4, 16, 1, 51}, {8, 32, 1, 103}}) {
    const PipelineShape shape{.ranks = golden.ranks, .microbatches = golden.microbatches};
    SCOPED_TRACE(text_of("zero_bubble_h1", shape));
    const Timeline made = played("zero_bubble_h1", shape);
    EXPECT_EQ(made.makespan, golden.makespan);
    expect_bubble(made, shape, 3 * shape.microbatches);
    EXPECT_EQ(peaks_of(made), std::vector<int>(std::size_t(shape.ranks), shape.ranks));
  }
}

TEST(PipelineGoldens, interleaved_needs_as_many_active_microbatches_as_ranks) {
  for (const Golden& golden : {Golden{2, 4, 1, 24},
                               {2, 4, 2, 15},
                               {2, 4, 3, 15},
                               {2, 4, 4, 15},
                               {4, 8, 2, 51},
                               {4, 8, 4, 33},
                               {4, 8, 6, 33},
                               {4, 8, 8, 33},
                               {4, 16, 1, 192},
                               {4, 16, 2, 99},
                               {4, 16, 4, 57},
                               {4, 16, 6, 57, {6, 6, 4, 1}},
                               {8, 32, 4, 201},
                               {8, 32, 8, 117}}) {
    const PipelineShape shape{.ranks = golden.ranks,
                              .microbatches = golden.microbatches,
                              .active_microbatches = golden.other};
    SCOPED_TRACE(text_of("interleaved", shape));
    const Timeline made = played("interleaved", shape);
    EXPECT_EQ(made.makespan, golden.makespan);
    expect_bubble(made, shape, 3 * shape.microbatches);
    if (!golden.peaks.empty()) {
      EXPECT_EQ(peaks_of(made), golden.peaks);
    }
  }
}

TEST(PipelineGoldens, latency_costs_1f1b_two_hops_for_each_microbatch) {
  const PipelineShape shape{.ranks = 4, .microbatches = 8};
  const Schedule schedule = make_schedule(schedule_named("1f1b"), shape);
  for (const double latency : {0., 0.1, 0.25, 0.5}) {
    const Timeline made = played(schedule, shape, {}, latency);
    // A tenth is no dyadic number. No time is the sum of more spans and messages than there are,
    // and each sum is rounded by at most half of the last place of numbers below 64.
    const int additions = 4 * 8 * 2 + 3 * 8 * 2;
    const double error = additions * 64 * std::numeric_limits<double>::epsilon();
    EXPECT_NEAR(made.makespan, 33 + 16 * latency, latency == 0.1 ? error : 0) << latency;
  }
}

}  // namespace goldens
}  // namespace
}  // namespace sprat::mp
