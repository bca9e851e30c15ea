// The loss scale: what a run of good steps and overflows makes of it, and what is refused.
#include "fsdp/scaler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>
#include <string>
#include <vector>

#include "comm/base/log.hpp"
#include "sprat/error.hpp"

namespace sprat::fsdp {
namespace {

using testing::HasSubstr;

/// The scale after each step; '.' is a good one, 'o' an overflow.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> result;
  for (const char step : steps) {
    scaler.update(step == 'o');
    result.push_back(scaler.scale());
  }
  return result;
}

TEST(LossScaler, follows_megatrons_rules) {
  const LossScaleOptions standard = {
      .dynamic = true, .initial = 16, .window = 3, .hysteresis = 2, .least = 2};
  const struct {
    const char* what;
    LossScaleOptions options;
    const char* steps;
    std::vector<double> expected;
  } cases[] = {
      {"grows after a window", standard, "......", {16, 16, 32, 32, 32, 64}},
      {"an overflow begins the window anew", standard, "..o..", {16, 16, 16, 16, 16}},
      {"backs off at the second overflow and at each after it", standard, "oooo", {16, 8, 4, 2}},
      {"good steps do not refill the hysteresis", standard, "o.o", {16, 16, 8}},
      {"growth does", standard, "o...o", {16, 16, 16, 32, 32}},
      {"stays at the least", standard, "oooooo", {16, 8, 4, 2, 2, 2}},
      {"static: never", {.initial = 8}, "ooo....", {8, 8, 8, 8, 8, 8, 8}},
  };
  for (const auto& [what, options, steps, expected] : cases) {
    LossScaler scaler(options);
    EXPECT_EQ(scales(scaler, steps), expected) << what;
  }
}

TEST(LossScaler, begins_at_one_or_if_dynamic_at_65536) {
  EXPECT_EQ(LossScaler({}).scale(), 1);
  EXPECT_EQ(LossScaler({.dynamic = true}).scale(), 65536);
  EXPECT_EQ(LossScaler({.dynamic = true, .initial = 1}).scale(), 1);
}

TEST(LossScaler, stops_growing_where_its_reciprocal_would_be_denormal) {
  LossScaler scaler({.dynamic = true, .initial = 0x1p63, .window = 1});
  EXPECT_EQ(scales(scaler, "..."), (std::vector<double>{0x1p64, 0x1p64, 0x1p64}));
}

TEST(LossScaler, goes_on_from_its_counters) {
  const LossScaleOptions options = {.dynamic = true, .initial = 16, .window = 3};
  const std::string steps = "..o...o.o....oo..";
  for (std::size_t saved = 0; saved < steps.size(); ++saved) {
    LossScaler went_on(options), resumed(options);
    scales(went_on, steps.substr(0, saved));
    resumed.restore(went_on.counters());
    EXPECT_EQ(scales(went_on, steps.substr(saved)), scales(resumed, steps.substr(saved)))
        << "after " << saved << " steps";
  }
}

TEST(LossScaler, begins_afresh_where_a_run_with_a_static_scale_was_saved) {
  const LossScaler still({.initial = 8});
  LossScaler moving({.dynamic = true});
  moving.restore(still.counters());
  EXPECT_EQ(moving.scale(), 65536);
}

TEST(LossScaler, goes_on_from_no_less_than_its_least) {
  LossScaler low({.dynamic = true, .initial = 2}), high({.dynamic = true, .least = 16});
  high.restore(low.counters());
  EXPECT_EQ(high.scale(), 16);
}

TEST(LossScaler, says_once_that_it_cannot_back_off) {
  std::ostringstream said;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(said);
  Log::logger().sinks().push_back(sink);
  LossScaler scaler({.dynamic = true, .initial = 2, .hysteresis = 1});
  scaler.update(true);
  EXPECT_EQ(said.str(), "");
  scaler.update(true);
  const std::string once = said.str();
  scaler.update(true);
  Log::logger().sinks().pop_back();
  EXPECT_THAT(once, HasSubstr("at the least loss scale, 1"));
  EXPECT_THAT(once, HasSubstr("learning rate"));
  EXPECT_EQ(said.str(), once);
}

TEST(LossScaler, refuses_by_name) {
  const auto refusal = [](const LossScaleOptions& options) -> std::string {
    try {
      LossScaler scaler(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const struct {
    LossScaleOptions options;
    const char* said;
  } cases[] = {
      {{.initial = 1000}, "loss_scale.initial is 1000; it is a power of two"},
      {{.initial = -2}, "loss_scale.initial is -2"},
      {{.dynamic = true, .growth = 1}, "loss_scale.growth is 1"},
      {{.dynamic = true, .backoff = 0.75}, "loss_scale.backoff is 0.75"},
      {{.dynamic = true, .window = 0}, "loss_scale.window is 0; it is at least 1"},
      {{.dynamic = true, .hysteresis = 0}, "loss_scale.hysteresis is 0; it is at least 1"},
      {{.dynamic = true, .initial = 2, .least = 4}, "loss_scale.least is 4"},
  };
  for (const auto& [options, said] : cases) {
    EXPECT_THAT(refusal(options), HasSubstr(said));
  }
  LossScaler scaler({.dynamic = true});
  EXPECT_THROW(scaler.restore({{"loss_scale", 2}}), Error);
  for (const double value : {1e18, -5.0, 1e300, 0.5}) {
    EXPECT_THROW(scaler.restore({{"loss_scale", 2},
                                 {"loss_scale_good_steps", value},
                                 {"loss_scale_overflows_left", 1}}),
                 Error)
        << value;
  }
}

}  // namespace
}  // namespace sprat::fsdp
