// Decisions on made-up seconds.
#include "io/cores/core_governor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

std::chrono::nanoseconds rounded_nanoseconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * seconds));
}

/// Reductions of mixed sizes with noise, of which those beside decoding take 1 + slowdown.
double measured_slowdown(double slowdown, double noise, unsigned seed) {
  std::mt19937 engine(seed);
  std::lognormal_distribution<double> jitter(0, noise);
  ReductionSlowdown measure;
  for (int reduction = 0; reduction < 400; ++reduction) {
    const std::size_t bytes = std::size_t{1} << (10 + engine() % 3 * 7);
    const bool busy = engine() % 2 == 0;
    const double seconds = 1e-5 + static_cast<double>(bytes) / 1e9;
    measure.add(rounded_nanoseconds(seconds * (busy ? 1 + slowdown : 1) * jitter(engine)), bytes,
                busy ? 2 : 0, 2);
  }
  return measure.slowdown().value_or(-99);
}

TEST(ReductionSlowdown, is_what_was_put_in) {
  for (const double slowdown : {0.0, 0.05, 0.2, 1.0, 5.0}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      EXPECT_NEAR(measured_slowdown(slowdown, 0, seed), slowdown, 1e-4);
      // A median of 32 of a log-normal spread of 10 % is off by 1.25 * 10 % / sqrt(32) once in
      // three; here two of them are divided, and the bound is four times that.
      EXPECT_NEAR(measured_slowdown(slowdown, 0.1, seed), slowdown,
                  (1 + slowdown) * 4 * std::sqrt(2) * 1.25 * 0.1 / std::sqrt(32));
    }
  }
}

TEST(ReductionSlowdown, is_not_told_by_outliers) {
  ReductionSlowdown measure;
  for (int reduction = 0; reduction < 64; ++reduction) {
    const auto took = reduction % 8 == 0 ? 1000ms : 10ms;
    measure.add(took, 1 << 20, 2, 2);
    measure.add(10ms, 1 << 20, 0, 2);
  }
  EXPECT_NEAR(*measure.slowdown(), 0, 1e-6);
}

TEST(ReductionSlowdown, is_unknown_before_both_were_seen_of_one_size) {
  ReductionSlowdown measure;
  EXPECT_TRUE(measure.knows_quiet()) << "there is nothing to compare";
  for (int reduction = 0; reduction < 20; ++reduction) {
    measure.add(10ms, 1 << 20, 2, 2);
    measure.add(10ms, 1 << 10, 0, 2);
    measure.add(10ms, 1 << 20, 0.7, 2);  // neither busy nor quiet
  }
  EXPECT_EQ(measure.slowdown(), std::nullopt);
  EXPECT_FALSE(measure.knows_quiet());
  for (int reduction = 0; reduction < 20; ++reduction) {
    measure.add(5ms, 1 << 20, 0, 2);
  }
  EXPECT_TRUE(measure.knows_quiet());
  EXPECT_NEAR(*measure.slowdown(), 1.0, 1e-6);
}

TEST(ReductionSlowdown, forgets_what_was_long_ago) {
  ReductionSlowdown measure;
  for (int reduction = 0; reduction < 100; ++reduction) {
    measure.add(30ms, 1 << 20, 2, 2);
    measure.add(10ms, 1 << 20, 0, 2);
  }
  for (int reduction = 0; reduction < 40; ++reduction) {
    measure.add(11ms, 1 << 20, 2, 2);
  }
  EXPECT_NEAR(*measure.slowdown(), 0.1, 1e-6);
}

CoreObservation observed_second(double slowdown, double reducing, double waiting) {
  return {
      .seconds = 1, .reducing_seconds = reducing, .consumer_wait = waiting, .slowdown = slowdown};
}

/// After so many equal seconds.
CoreDecision decision_after(CoreGovernor& governor, const CoreObservation& observed, int seconds) {
  CoreDecision decision;
  for (int time = 0; time < seconds; ++time) {
    decision = governor.decide(observed);
  }
  return decision;
}

TEST(CoreGovernor, lets_all_decode_while_reductions_are_well) {
  CoreGovernor governor(4);
  EXPECT_EQ(decision_after(governor, observed_second(0.0, 0.5, 0), 100),
            (CoreDecision{.decoders = 4}));
  EXPECT_EQ(decision_after(governor, observed_second(0.04, 0.9, 0), 100),
            (CoreDecision{.decoders = 4}))
      << "less than can be told from noise";
  EXPECT_EQ(decision_after(governor, {.reducing_seconds = 0.9, .slowdown = std::nullopt}, 100),
            (CoreDecision{.decoders = 4}))
      << "not measured";
}

TEST(CoreGovernor, lowers_priority_first_then_threads_one_by_one_down_to_one) {
  CoreGovernor governor(3);
  const CoreObservation suffering = observed_second(0.5, 0.5, 0);
  EXPECT_EQ(decision_after(governor, suffering, 2), (CoreDecision{.decoders = 3}));
  EXPECT_EQ(decision_after(governor, suffering, 1),
            (CoreDecision{.decoders = 3, .give_way = true}));
  EXPECT_EQ(decision_after(governor, suffering, 3),
            (CoreDecision{.decoders = 2, .give_way = true}));
  EXPECT_EQ(decision_after(governor, suffering, 3),
            (CoreDecision{.decoders = 1, .give_way = true}));
  EXPECT_EQ(decision_after(governor, suffering, 30),
            (CoreDecision{.decoders = 1, .give_way = true}));
}

TEST(CoreGovernor, does_not_starve_a_consumer_to_save_reductions) {
  CoreGovernor governor(4);
  // Of half a second of reductions a sixth is lost, 8 % of the time; 20 % are waited for batches.
  EXPECT_EQ(decision_after(governor, observed_second(0.2, 0.5, 0.2), 100),
            (CoreDecision{.decoders = 4}));
}

TEST(CoreGovernor, gives_back_what_is_wanted_again) {
  CoreGovernor governor(3);
  decision_after(governor, observed_second(0.5, 0.5, 0), 9);
  EXPECT_EQ(decision_after(governor, observed_second(0.0, 0.5, 0), 6),
            (CoreDecision{.decoders = 3, .give_way = true}));
  EXPECT_EQ(decision_after(governor, observed_second(0.0, 0.5, 0), 60),
            (CoreDecision{.decoders = 3, .give_way = true}))
      << "to give way costs nothing";
  EXPECT_EQ(decision_after(governor, observed_second(0.0, 0.5, 0.1), 3),
            (CoreDecision{.decoders = 3}));
}

TEST(CoreGovernor, does_not_swing_with_a_second_that_is_unlike_the_others) {
  CoreGovernor governor(4);
  for (int time = 0; time < 300; ++time) {
    const CoreDecision decision =
        governor.decide(observed_second(time % 3 == 0 ? 0.0 : 0.5, 0.5, 0));
    EXPECT_EQ(decision, (CoreDecision{.decoders = 4})) << time;
  }
}

TEST(QuietProbe, pauses_for_a_twentieth_of_a_second_every_ten_while_it_is_wanted) {
  QuietProbe probe;
  QuietProbe::Time now{};
  int paused = 0;
  for (int millisecond = 0; millisecond < 60'000; ++millisecond) {
    now += 1ms;
    paused += probe.pauses(now, true) ? 1 : 0;
  }
  EXPECT_NEAR(paused, 6 * 50, 6);
  for (int millisecond = 0; millisecond < 60'000; ++millisecond) {
    now += 1ms;
    EXPECT_FALSE(probe.pauses(now, false) && millisecond > 50);
  }
}

}  // namespace
}  // namespace sprat::io
