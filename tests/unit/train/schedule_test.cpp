// Learning rates by step, and the warnings of batches that make no sense.
#include "train/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(LearningRate, warms_up_to_the_peak_and_ends_at_the_final_rate) {
  OptimizationConfig config;
  config.steps = 100;
  config.warmup_steps = 10;
  config.learning_rate = 1.0;
  config.final_learning_rate = 0.1;
  for (const ScheduleKind* kind : all_schedules()) {
    SCOPED_TRACE(kind->name);
    config.schedule = kind->name;
    EXPECT_DOUBLE_EQ(learning_rate(config, 0), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(config, 9), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(config, 10), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(config, 55), 0.55);
    EXPECT_DOUBLE_EQ(learning_rate(config, 100), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(config, 5000), 0.1);
    for (int step = 11; step < 100; ++step) {
      EXPECT_LT(learning_rate(config, step), learning_rate(config, step - 1)) << step;
    }
  }
}

TEST(LearningRate, falls_as_its_schedule_says) {
  OptimizationConfig config;
  config.steps = 120;
  config.warmup_steps = 0;
  config.learning_rate = 1.0;
  config.final_learning_rate = 0.0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 40), 0.75);  // (1 + cos 60 degrees) / 2
  config.schedule = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(config, 30), 0.75);
}

TEST(LearningRate, scales_with_the_batch_after_a_warm_up_from_the_base_rate) {
  OptimizationConfig config;
  config.steps = 100;
  config.warmup_steps = 4;
  config.learning_rate = 0.5;
  config.batch = 96;
  config.base_batch = 32;
  config.final_learning_rate = 0.25;
  EXPECT_DOUBLE_EQ(peak_learning_rate(config), 1.5);
  for (int step = 0; step < 4; ++step) {
    EXPECT_DOUBLE_EQ(learning_rate(config, step), 0.5 + 0.25 * (step + 1)) << step;
  }
  EXPECT_DOUBLE_EQ(learning_rate(config, 4), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100), 0.25);
  config.batch = 16;  // a smaller batch: the rate falls, and the warm-up is as ever
  EXPECT_DOUBLE_EQ(peak_learning_rate(config), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(config, 0), 0.0625);
}

TEST(BatchWarnings, name_the_number_and_the_remedy) {
  TrainConfig sensible;
  sensible.train.steps = 100;
  sensible.train.batch = 32;
  sensible.model.context = 128;
  const BatchFacts facts = {.ranks = 4, .samples_per_epoch = 1000, .parameters = 400'000};
  EXPECT_THAT(batch_warnings(sensible, facts), IsEmpty());

  TrainConfig config = sensible;
  config.train.batch = 2000;
  EXPECT_THAT(batch_warnings(config, facts),
              ElementsAre(HasSubstr("train.batch 2000 is more than the 1000 samples of an epoch")));
  config = sensible;
  config.train.steps = 90;
  EXPECT_THAT(batch_warnings(config, facts),
              ElementsAre(HasSubstr("3.69e+05 tokens, fewer than the model's 4e+05 parameters")));
  config = sensible;
  config.sharding.micro_steps = 8;
  EXPECT_THAT(batch_warnings(config, facts),
              ElementsAre(HasSubstr("each of 4 ranks computes one sample at a time, 8 times")));
  config = sensible;
  config.train.batch = 33;
  EXPECT_THAT(batch_warnings(config, facts),
              ElementsAre(HasSubstr("train.batch 33 does not divide by 4 ranks x 1 micro-steps: "
                                    "some compute 9 samples where others wait with 8; 36 "
                                    "divides")));
  config = sensible;
  config.train.base_batch = 8;
  config.train.warmup_steps = 0;
  EXPECT_THAT(
      batch_warnings(config, facts),
      ElementsAre(HasSubstr("train.base_batch 8 raises the learning rate 4 times to 0.004")));
}

}  // namespace
}  // namespace sprat::train
