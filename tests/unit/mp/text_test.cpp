// Schedules as text, and what is no schedule.
#include "mp/text.hpp"

#include <gtest/gtest.h>

#include <string>

#include "mp/passes/passes.hpp"
#include "sprat/error.hpp"
#include "tests/unit/mp/shapes.hpp"

namespace sprat::mp {
namespace {

TEST(PipelineText, comes_back_as_it_was) {
  for (const ScheduleKind* kind : all_schedules()) {
    for (const PipelineShape& shape : shapes_of(*kind, 3, 6)) {
      const Schedule schedule =
          communicate(unshard(reduce(offload(kind->make(shape), {.horizon = 1})), 2));
      for (const Schedule& read : {schedule_of_text(to_text(schedule), kind->name),
                                   schedule_of_csv(to_csv(schedule), kind->name)}) {
        EXPECT_EQ(read.actions, schedule.actions) << kind->name << words(shape);
        EXPECT_EQ(read.rank_of_stage, schedule.rank_of_stage) << kind->name << words(shape);
        EXPECT_EQ(read.microbatches, schedule.microbatches) << kind->name << words(shape);
      }
    }
  }
}

TEST(PipelineText, of_torch_has_empty_cells_for_idle_ranks) {
  const Schedule schedule = schedule_of_csv("0F0,,,0B0\r\n,1F0,1B0,\r\n", "torch");
  EXPECT_EQ(to_csv(schedule), "0F0,0B0\r\n1F0,1B0\r\n");
}

TEST(PipelineText, names_overlaps_by_their_parts) {
  const Schedule schedule =
      schedule_of_text("0F0 1F0 1B0 0B0 0F1 1F1 (0F2;1B1)OVERLAP_F_B\n", "mine");
  const Action& last = schedule.actions[0].back();
  EXPECT_EQ(last.op, Op::overlap);
  EXPECT_EQ(to_text(last), "(0F2;1B1)OVERLAP_F_B");
}

TEST(PipelineText, that_is_no_schedule_is_refused_with_its_place) {
  const std::string form =
      "is no action; one is a stage, a word and a micro-batch, like 2F0, 1SEND_F3 or 0UNSHARD (of "
      "no micro-batch)";
  const struct {
    const char* csv;
    std::string complaint;
  } cases[] = {
      {"", "a schedule has a row of actions for each rank; this has none"},
      {"0F0,0X0", "row 1, column 2: \"0X0\" " + form},
      {"0F0\n1F0,,1F", "row 2, column 3: \"1F\" lacks its micro-batch"},
      {"0UNSHARD3", "row 1, column 1: \"0UNSHARD3\" is of a stage alone and has no micro-batch"},
      {"F0", "row 1, column 1: \"F0\" " + form},
      {"0F0x", "row 1, column 1: \"0F0x\" " + form},
      {"-1F0", "row 1, column 1: \"-1F0\" " + form},
      {"0OVERLAP_F_B0", "row 1, column 1: \"0OVERLAP_F_B0\" " + form},
      {"99999999999F0",
       "row 1, column 1: \"99999999999F0\" has a number that no stage or micro-batch has"},
      {"0F5",
       "row 1, column 1: \"0F5\" has a number above the count of actions, 1; stages and "
       "micro-batches are numbered from 0, and each has its actions"},
      {"(0F0;0B1)OVERLAP",
       "row 1, column 1: \"(0F0;0B1)OVERLAP\" is no overlap; one is like (0F4;3B1)OVERLAP_F_B"},
      {"(0B0;0F1)OVERLAP_F_B",
       "row 1, column 1: \"(0B0;0F1)OVERLAP_F_B\" overlaps something else than an F and a B, in "
       "this order"},
      {"0F0,0B0\n1F0,0F1",
       "row 2, column 2: \"0F1\" is of a stage that row 1 has, too; all of a "
       "stage is in one row"},
      {"0F0\n\n1F0",
       "row 2, column 1: a rank without actions; each row before the last needs some"},
      {"0F0,2F0",
       "row 1, column 2: \"2F0\" has a number above the count of actions, 2; stages and "
       "micro-batches are numbered from 0, and each has its actions"},
      {"0F0,0B0,2F0,2B0", "no row has an action of stage 1; there are stages up to 2"},
      {"\x01\xff", "row 1, column 1: \"??\" " + form},
  };
  for (const auto& each : cases) {
    try {
      schedule_of_csv(each.csv, "theirs");
      ADD_FAILURE() << each.csv << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), each.complaint) << each.csv;
    }
  }
}

}  // namespace
}  // namespace sprat::mp
