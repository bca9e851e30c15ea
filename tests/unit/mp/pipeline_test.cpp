// Ranks as threads that play schedules with stages whose results are known.
#include "sprat/pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"
#include "sprat/layout.hpp"
#include "tests/unit/mp/known_stages.hpp"
#include "tests/unit/mp/shapes.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::mp {
namespace {

namespace played {

using ::testing::HasSubstr;

/// What stages are asked for, one after the other: messages are the pipeline's.
std::vector<Action> calls_of(const Schedule& schedule, int rank) {
  std::vector<Action> calls;
  for (const Action& action : schedule.actions[std::size_t(rank)]) {
    for (const Action& part : parts_of(action)) {
      if (!is_send(part.op) && !is_receive(part.op)) {
        calls.push_back(part);
      }
    }
  }
  return calls;
}

/// Plays `runs` steps and holds every value and the order of all calls against the model.
void play(
    Communicator& ranks, const Schedule& schedule, std::size_t most = 24, int runs = 2,
    const std::function<void(const Action&)>& before = [](const Action&) {}) {
  KnownStages stages({schedule.stages(), most});
  stages.before = before;
  Pipeline pipeline(ranks, schedule, stages);
  for (stages.run = 0; stages.run < runs; ++stages.run) {
    stages.calls.clear();
    pipeline.run();
    EXPECT_EQ(stages.calls, calls_of(schedule, ranks.rank()))
        << schedule.name << ", " << schedule.microbatches << " micro-batches, rank "
        << ranks.rank();
  }
}

Schedule made(const std::string& kind, const PipelineShape& shape) {
  return make_schedule({.kind = kind, .shape = shape});
}

class PipelineOfRanks : public ::testing::TestWithParam<int> {};

// Such a message comes in two parts, and the second is long enough that its send waits for its
// receive: a rank that waited for it in the midst of a run was waited for in turn.
TEST(PipelineRun, takes_micro_batches_that_are_longer_than_in_the_run_before) {
  Config config;
  config.timeout = std::chrono::seconds(20);
  run_virtual_ranks(2, config, [](Communicator& world) {
    for (const ScheduleKind* kind : all_schedules()) {
      for (const PipelineShape& shape : shapes_of(*kind, 2, 3)) {
        if (shape.ranks != 2 || shape.microbatches != 3) {
          continue;
        }
        const Schedule schedule = make_schedule(*kind, shape);
        for (const int ahead : {0, 2}) {
          if (sanitized && ahead > 0) {
            continue;  // the same code, at ten times the price
          }
          KnownStages stages({schedule.stages(), 12'000});
          Pipeline pipeline(world, schedule, stages, {.messages_ahead = ahead});
          for (stages.run = 0; stages.run < 3; ++stages.run) {
            pipeline.run();
          }
        }
      }
    }
  });
}

TEST_P(PipelineOfRanks, computes_each_micro_batch_by_every_schedule) {
  run_virtual_ranks(GetParam(), Config{}, [](Communicator& world) {
    for (const ScheduleKind* kind : all_schedules()) {
      for (const PipelineShape& shape : shapes_of(*kind, world.size(), 8)) {
        if (shape.ranks == world.size()) {
          play(world, make_schedule(*kind, shape));
        }
      }
    }
  });
}

TEST_P(PipelineOfRanks, computes_with_each_number_of_active_micro_batches) {
  run_virtual_ranks(GetParam(), Config{}, [](Communicator& world) {
    for (const ScheduleKind* kind : all_schedules()) {
      for (int active = 1; active <= 8; ++active) {
        const PipelineShape shape{
            .ranks = world.size(), .microbatches = 8, .active_microbatches = active};
        if (kind->refusal(shape).empty()) {
          play(world, make_schedule(*kind, shape), 24, 1);
        }
      }
    }
  });
}

TEST_P(PipelineOfRanks, asks_for_everything_that_passes_put_in) {
  run_virtual_ranks(GetParam(), Config{}, [](Communicator& world) {
    for (const ScheduleKind* kind : all_schedules()) {
      for (const PipelineShape& shape : shapes_of(*kind, world.size(), 8)) {
        if (shape.ranks == world.size() && shape.microbatches == 8) {
          const std::size_t stages = std::size_t(shape.ranks * shape.stages_per_rank);
          play(world, make_schedule({.kind = std::string(kind->name),
                                     .shape = shape,
                                     .recomputed = std::vector<bool>(stages, true),
                                     .offload = Offload{.horizon = 1},
                                     .unsharded_stages = 2,
                                     .reduces = true}));
        }
      }
    }
  });
}

TEST_P(PipelineOfRanks, computes_the_same_whoever_is_late) {
  run_virtual_ranks(GetParam(), Config{}, [](Communicator& world) {
    std::mt19937 random(unsigned(world.rank()));
    const auto be_late = [&](const Action&) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
    };
    for (const ScheduleKind* kind : all_schedules()) {
      PipelineShape shape{.ranks = world.size(), .microbatches = 2 * world.size()};
      shape.stages_per_rank = kind->refusal(shape).empty() ? 1 : 2;
      // Beyond what is sent without waiting for its receive.
      play(world, make_schedule(*kind, shape), 5000, 1, be_late);
    }
  });
}

TEST_P(PipelineOfRanks, evaluates_by_forwards_alone) {
  run_virtual_ranks(GetParam(), Config{}, [](Communicator& world) {
    for (const ScheduleKind* kind : all_schedules()) {
      for (const PipelineShape& shape : shapes_of(*kind, world.size(), 8)) {
        if (shape.ranks == world.size() && shape.microbatches == 8) {
          play(world, evaluation_of(make_schedule(*kind, shape), 1));
        }
      }
    }
  });
}

TEST_P(PipelineOfRanks, passes_on_messages_without_elements) {
  run_virtual_ranks(GetParam(), Config{}, [](Communicator& world) {
    for (const char* kind : {"1f1b", "zero_bubble_h1"}) {
      play(world, made(kind, {.ranks = world.size(), .microbatches = 4}), 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, PipelineOfRanks, ::testing::Values(1, 2, 3, 4));

TEST(PipelineRun, goes_on_beside_another_one) {
  run_virtual_ranks(4, Config{}, [](Communicator& world) {
    const ParallelLayout layout({.world = 4, .pipeline = 2});
    Communicator ranks = split_along(world, layout, Axes::pipeline);
    // Of one communicator two, as a trainer and its evaluation have them.
    const Schedule schedule = made("interleaved", {.ranks = 2, .microbatches = 6});
    KnownStages stages(KnownModel(2)), evaluated(KnownModel(2));
    Pipeline training(ranks, schedule, stages);
    Pipeline evaluation(ranks, evaluation_of(schedule), evaluated);
    for (int run = 0; run < 4; ++run) {
      stages.run = evaluated.run = run;
      training.run();
      evaluation.run();
    }
    EXPECT_EQ(stages.calls.size(), 4 * calls_of(schedule, ranks.rank()).size());
  });
}

/// The Error of `function` on this rank.
std::optional<Error> error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(PipelineRun, tells_every_rank_which_stage_threw) {
  run_virtual_ranks(3, Config{}, [](Communicator& world) {
    KnownStages stages(KnownModel(3));
    stages.before = [&](const Action& action) {
      if (action == Action{.op = Op::backward, .stage = 1, .microbatch = 2}) {
        throw std::runtime_error("no more numbers");
      }
    };
    Pipeline pipeline(world, made("1f1b", {.ranks = 3, .microbatches = 6}), stages);
    const auto error = error_of([&] { pipeline.run(); });
    ASSERT_TRUE(error) << "rank " << world.rank();
    EXPECT_EQ(error->code(), ErrorCode::aborted) << "rank " << world.rank();
    EXPECT_THAT(error->what(), HasSubstr("rank 1 of world.pipeline, 1B2, stage 1, micro-batch 2: "
                                         "no more numbers"));
    EXPECT_THAT(error->what(), HasSubstr(text("rank ", world.rank(), " of world.pipeline")));
    EXPECT_TRUE(error_of([&] { pipeline.run(); })) << "a failed job stays so";
  });
}

TEST(PipelineRun, names_who_waits_for_what_when_a_deadline_passes) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    KnownStages stages(KnownModel(2));
    std::optional<Error> seen;
    stages.before = [&](const Action& action) {
      // Until the other one has given up.
      while (action == Action{.op = Op::forward, .stage = 0, .microbatch = 1} &&
             !(seen = world.failure())) {
        std::this_thread::yield();
      }
    };
    Pipeline pipeline(world, made("gpipe", {.ranks = 2, .microbatches = 4}), stages,
                      {.timeout = std::chrono::milliseconds(200)});
    const auto error = error_of([&] { pipeline.run(); });
    ASSERT_TRUE(error) << "rank " << world.rank();
    EXPECT_EQ(error->code(), ErrorCode::timeout) << error->what();
    if (world.rank() == 1) {
      EXPECT_THAT(error->what(), HasSubstr("1F1, stage 1, micro-batch 1"));
    }
  });
}

TEST(PipelineRun, refuses_more_elements_than_was_said) {
  run_virtual_ranks(1, Config{}, [](Communicator& world) {
    class TooMany final : public PipelineStages {
     public:
      std::size_t most_elements(int) const override { return 3; }
      std::size_t forward(int, int, std::span<const float>, std::span<float>) override { return 4; }
      void backward(int, int, std::span<const float>, std::span<float>) override {}
      void backward_input(int, int, std::span<const float>, std::span<float>) override {}
      void backward_weight(int, int) override {}
    } stages;
    const Schedule schedule =
        made("interleaved", {.ranks = 1, .microbatches = 1, .stages_per_rank = 2});
    Pipeline pipeline(world, schedule, stages);
    const auto error = error_of([&] { pipeline.run(); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("0F0, stage 0, micro-batch 0: its forward wrote 4 "
                                         "elements, and the stage gives 3 at most"));
  });
}

struct Disagreement {
  const char* kind = "1f1b";
  int microbatches = 4;
  int messages_ahead = 2;
  std::size_t most = 8;
  const char* told = "";
};

TEST(PipelineAgreement, say_what_differs_between_ranks) {
  for (const Disagreement& other : {
           Disagreement{.microbatches = 5, .told = "in their micro-batches: 4 and 5"},
           Disagreement{.messages_ahead = 1, .told = "in their messages_ahead: 2 and 1"},
           Disagreement{.messages_ahead = -1, .told = "in their messages_ahead: 2 and -1"},
           Disagreement{.kind = "gpipe", .told = "in their name"},
           Disagreement{.most = 9, .told = "that stage 0 gives to the next: 8 and 9"},
       }) {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      const Disagreement& mine = world.rank() == 0 ? Disagreement{} : other;
      KnownStages stages({2, mine.most});
      const auto error = error_of([&] {
        Pipeline(world, made(mine.kind, {.ranks = 2, .microbatches = mine.microbatches}), stages,
                 {.messages_ahead = mine.messages_ahead});
      });
      ASSERT_TRUE(error) << other.told;
      EXPECT_EQ(error->code(), ErrorCode::mismatch);
      EXPECT_THAT(error->what(), HasSubstr(other.told)) << "rank " << world.rank();
    });
  }
}

TEST(PipelineAgreement, name_the_rank_whose_actions_differ) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    Schedule schedule = made("gpipe", {.ranks = 2, .microbatches = 4});
    if (world.rank() == 0) {
      std::swap(schedule.actions[1][0], schedule.actions[1][1]);
    }
    KnownStages stages(KnownModel(2));
    const auto error = error_of([&] { Pipeline(world, schedule, stages); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("in their actions of rank 1;"));
  });
}

TEST(PipelineAgreement, refuse_what_cannot_run) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    KnownStages stages(KnownModel(2));
    const Schedule schedule = made("gpipe", {.ranks = 2, .microbatches = 2});
    Schedule cut = schedule;
    cut.actions[1].pop_back();
    const auto lacks = error_of([&] { Pipeline(world, cut, stages); });
    ASSERT_TRUE(lacks);
    EXPECT_THAT(lacks->what(), HasSubstr("rank 1: 1B1 is missing, or its halves"));
    const auto size =
        error_of([&] { Pipeline(world, made("gpipe", {.ranks = 3, .microbatches = 2}), stages); });
    ASSERT_TRUE(size);
    EXPECT_THAT(size->what(), HasSubstr("is for 3 ranks, but world has 2"));
  });
}

/// Spans of one rank's thread: computation, and waits for messages.
std::vector<TimeSpan> own_spans(const Schedule& schedule, const Timeline& timeline,
                                std::size_t rank) {
  std::vector<TimeSpan> spans;
  for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
    if (!is_send(schedule.actions[rank][i].op)) {
      spans.push_back(timeline.spans[rank][i]);
    }
  }
  std::ranges::sort(spans, {}, &TimeSpan::start);
  return spans;
}

TEST(PipelineTimeline, says_when_each_rank_computed_and_waited) {
  run_virtual_ranks(3, Config{}, [](Communicator& world) {
    KnownStages stages(KnownModel(3));
    stages.before = [](const Action&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    Pipeline pipeline(world, made("gpipe", {.ranks = 3, .microbatches = 2}), stages);
    pipeline.run();
    const Schedule& schedule = pipeline.schedule();
    const Timeline timeline = pipeline.timeline();
    ASSERT_EQ(timeline.spans.size(), 3u);
    EXPECT_GT(timeline.bubble, 0.2) << "a third or more of gpipe's time, p = 3 and m = 2";
    EXPECT_LT(timeline.bubble, 1);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      double free = 0;
      for (const TimeSpan& span : own_spans(schedule, timeline, rank)) {
        EXPECT_GE(span.start, free) << "rank " << rank;
        EXPECT_GE(span.end, span.start) << "rank " << rank;
        free = span.end;
      }
      EXPECT_LE(free, timeline.makespan);
      EXPECT_GE(timeline.ranks[rank].busy, 4e-3) << "four computations of a millisecond";
    }
    EXPECT_THAT(to_trace(schedule, timeline), HasSubstr("2RECV_F1"));
    EXPECT_THAT(draw(schedule, timeline), HasSubstr("rank 2 "));
  });
}

TEST(PipelineTimeline, orders_sends_before_the_ends_of_their_receives) {
  run_virtual_ranks(4, Config{}, [](Communicator& world) {
    KnownStages stages({4, 8192});
    Pipeline pipeline(world, made("1f1b", {.ranks = 4, .microbatches = 8}), stages);
    pipeline.run();
    const Schedule& schedule = pipeline.schedule();
    const Timeline timeline = pipeline.timeline();
    std::size_t messages = 0;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
        const Action& action = schedule.actions[rank][i];
        if (is_send(action.op)) {
          const Action other = other_end_of(action);
          const auto peer = std::size_t(schedule.rank_of_stage[std::size_t(other.stage)]);
          const auto found = std::ranges::find(schedule.actions[peer], other);
          const auto place = std::size_t(found - schedule.actions[peer].begin());
          EXPECT_LE(timeline.spans[rank][i].start, timeline.spans[peer][place].end)
              << to_text(action);
          ++messages;
        }
      }
    }
    EXPECT_EQ(messages, std::size_t(2 * 3 * 8));
  });
}

}  // namespace played
}  // namespace
}  // namespace sprat::mp
