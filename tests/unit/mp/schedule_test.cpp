// What every pipeline schedule holds, whatever its kind.
#include "mp/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mp/validate.hpp"
#include "sprat/error.hpp"
#include "tests/unit/mp/shapes.hpp"

namespace sprat::mp {
namespace {

Schedule made(const char* name, const PipelineShape& shape) {
  return make_schedule(schedule_named(name), shape);
}

std::string schedule_refusal(const char* name, const PipelineShape& shape) {
  try {
    made(name, shape);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PipelineSchedules, are_valid_in_every_shape_that_they_have) {
  for (const ScheduleKind* kind : all_schedules()) {
    int shapes = 0;
    for (const PipelineShape& shape : shapes_of(*kind, 8, 32)) {
      EXPECT_EQ(violations(kind->make(shape)), std::vector<std::string>{})
          << kind->name << words(shape);
      ++shapes;
    }
    EXPECT_GT(shapes, 100) << kind->name;
  }
}

TEST(PipelineSchedules, are_the_same_each_time) {
  for (const ScheduleKind* kind : all_schedules()) {
    for (const PipelineShape& shape : shapes_of(*kind, 4, 8)) {
      EXPECT_EQ(kind->make(shape).actions, kind->make(shape).actions) << kind->name << words(shape);
    }
  }
}

TEST(PipelineSchedules, have_the_names_that_people_know) {
  EXPECT_EQ(&schedule_named("simple"), &schedule_named("gpipe"));
  EXPECT_EQ(schedule_named("1f1b").name, "1f1b");
}

TEST(PipelineSchedules, hold_as_many_microbatches_as_their_formulas_say) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      std::vector<int> gpipe, one_f_one_b, zero_bubble;
      for (int rank = 0; rank < p; ++rank) {
        gpipe.push_back(m);
        one_f_one_b.push_back(std::min(p - rank, m));
        zero_bubble.push_back(std::min(p, m));
      }
      const PipelineShape shape{.ranks = p, .microbatches = m};
      EXPECT_EQ(peak_microbatches(made("gpipe", shape)), gpipe) << words(shape);
      EXPECT_EQ(peak_microbatches(made("1f1b", shape)), one_f_one_b) << words(shape);
      EXPECT_EQ(peak_microbatches(made("zero_bubble_h1", shape)), zero_bubble) << words(shape);
    }
  }
}

TEST(PipelineSchedules, of_virtual_stages_hold_one_more_than_they_run_ahead) {
  using Peaks = std::vector<int>;
  const auto peaks = [](int ranks, int microbatches, int stages) {
    return peak_microbatches(
        made("virtual_stages",
             {.ranks = ranks, .microbatches = microbatches, .stages_per_rank = stages}));
  };
  EXPECT_EQ(peaks(2, 4, 2), (Peaks{5, 3}));
  EXPECT_EQ(peaks(4, 8, 2), (Peaks{11, 9, 7, 5}));
  EXPECT_EQ(peaks(4, 8, 4), (Peaks{19, 17, 15, 13}));
  EXPECT_EQ(peaks(4, 4, 1), (Peaks{4, 4, 3, 1})) << "no more than there are";
}

TEST(PipelineSchedules, of_smp_hold_as_many_as_are_active) {
  const auto peaks = [](int active) {
    return peak_microbatches(made(
        "interleaved",
        {.ranks = 4, .microbatches = 16, .stages_per_rank = 1, .active_microbatches = active}));
  };
  EXPECT_EQ(peaks(6), (std::vector<int>{6, 6, 4, 1}));
  EXPECT_EQ(peaks(0), peaks(6)) << "two more than ranks unless told";
  EXPECT_EQ(peaks(1), (std::vector<int>{1, 1, 1, 1}));
}

TEST(PipelineSchedules, of_smp_are_valid_with_every_limit) {
  for (int p = 1; p <= 5; ++p) {
    for (int stages = 1; stages <= 2; ++stages) {
      for (int active = 1; active <= 9; ++active) {
        const PipelineShape shape{.ranks = p,
                                  .microbatches = 9,
                                  .stages_per_rank = stages,
                                  .active_microbatches = active};
        const Schedule schedule = made("interleaved", shape);
        EXPECT_EQ(violations(schedule), std::vector<std::string>{}) << active << words(shape);
        EXPECT_LE(peak_microbatches(schedule)[0], active * stages) << active << words(shape);
      }
    }
  }
}

TEST(PipelineSchedules, of_v_shape_hold_the_same_on_every_rank) {
  for (int p = 1; p <= 8; ++p) {
    const PipelineShape shape{.ranks = p, .microbatches = 4 * p, .stages_per_rank = 2};
    EXPECT_EQ(peak_microbatches(made("zb_v", shape)), std::vector<int>(std::size_t(p), 2 * p))
        << words(shape);
    EXPECT_EQ(peak_microbatches(made("dualpipe_v", shape)),
              std::vector<int>(std::size_t(p), 2 * p + 1))
        << words(shape);
  }
}

TEST(PipelineSchedules, of_1f1b_hold_no_more_than_the_limit) {
  const PipelineShape shape{
      .ranks = 4, .microbatches = 8, .stages_per_rank = 1, .active_microbatches = 2};
  EXPECT_EQ(peak_microbatches(made("1f1b", shape)), (std::vector<int>{2, 2, 2, 1}));
}

TEST(PipelineSchedules, of_other_shapes_are_refused_with_one_that_works) {
  EXPECT_EQ(
      schedule_refusal("virtual_stages", {.ranks = 4, .microbatches = 9, .stages_per_rank = 2}),
      "virtual_stages takes 9 micro-batches in 2 groups over 4 ranks, which cannot be equal; "
      "take 8 or 10 micro-batches");
  EXPECT_EQ(schedule_refusal(
                "interleaved",
                {.ranks = 2, .microbatches = 4, .stages_per_rank = 1, .active_microbatches = 6}),
            "interleaved cannot have 6 active micro-batches, for there are 4; take "
            "active_microbatches 4 or less");
  EXPECT_EQ(schedule_refusal("1f1b", {.ranks = 2, .microbatches = 4, .stages_per_rank = 2}),
            "1f1b has 1 stage a rank, not 2; virtual_stages takes several");
  EXPECT_EQ(schedule_refusal("dualpipe_v", {.ranks = 4, .microbatches = 7, .stages_per_rank = 2}),
            "dualpipe_v over 4 ranks needs 8 micro-batches or more, one for each stage, not 7");
  EXPECT_EQ(schedule_refusal("zb_v", {.ranks = 4, .microbatches = 8, .stages_per_rank = 1}),
            "zb_v has 2 stages a rank, not 1");
  EXPECT_EQ(
      schedule_refusal(
          "gpipe", {.ranks = 4, .microbatches = 8, .stages_per_rank = 1, .active_microbatches = 6}),
      "gpipe with 4 ranks and 8 micro-batches holds up to 8 of them, so "
      "active_microbatches cannot be 6; take 8 or more, or interleaved or 1f1b");
}

TEST(PipelineSchedules, of_no_shape_are_refused) {
  for (const ScheduleKind* kind : all_schedules()) {
    EXPECT_THROW(make_schedule(*kind, {.ranks = 0}), Error) << kind->name;
    EXPECT_THROW(make_schedule(*kind, {.ranks = 4, .microbatches = -1}), Error) << kind->name;
    EXPECT_THROW(make_schedule(*kind, {.ranks = 1 << 20, .microbatches = 1 << 20}), Error)
        << kind->name;
  }
}

TEST(PipelineSchedules, that_there_are_not_are_refused_with_those_there_are) {
  EXPECT_THROW(
      {
        try {
          schedule_named("2f2b");
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("gpipe (or simple), interleaved, 1f1b"),
                    std::string::npos)
              << error.what();
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace sprat::mp
