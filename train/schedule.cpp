// The table of schedules, the linear scaling rule, and what the documents warn of.
#include "train/schedule.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "sprat/error.hpp"

// One entry a file; a test compares the list with the folder.
#define SPRAT_SCHEDULES(entry) entry(cosine) entry(linear)

namespace sprat::train {

#define SPRAT_DECLARE(file) extern const ScheduleKind file##_schedule;
SPRAT_SCHEDULES(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const ScheduleKind* const> all_schedules() noexcept {
#define SPRAT_ADDRESS(file) &file##_schedule,
  static constexpr std::array schedules = {SPRAT_SCHEDULES(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return schedules;
}

const ScheduleKind& schedule_named(std::string_view name) {
  std::vector<std::string> known;
  for (const ScheduleKind* kind : all_schedules()) {
    if (kind->name == name) {
      return *kind;
    }
    known.push_back(fmt::format("\"{}\"", kind->name));
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("train.schedule is \"{}\"; it is {}", name, fmt::join(known, " or ")));
}

double peak_learning_rate(const OptimizationConfig& config) {
  const int base = config.base_batch > 0 ? config.base_batch : config.batch;
  return config.learning_rate * config.batch / base;
}

double learning_rate(const OptimizationConfig& config, int step) {
  const double peak = peak_learning_rate(config);
  if (step < config.warmup_steps) {
    // A peak that the batch has raised is approached from the rate that was right for the base
    // batch (Goyal et al. 2017, gradual warm-up). One step ahead: a rate of 0 would waste the first
    // step.
    const double begin = peak > config.learning_rate ? config.learning_rate : 0.0;
    return begin + (peak - begin) * (step + 1) / config.warmup_steps;
  }
  const double done = std::min(
      1.0, static_cast<double>(step - config.warmup_steps) / (config.steps - config.warmup_steps));
  const double share = schedule_named(config.schedule).share(done);
  return config.final_learning_rate + share * (peak - config.final_learning_rate);
}

std::vector<std::string> batch_warnings(const TrainConfig& config, const BatchFacts& facts) {
  std::vector<std::string> warnings;
  const auto warn = [&]<class... Args>(fmt::format_string<Args...> message, Args&&... args) {
    warnings.push_back(fmt::format(message, std::forward<Args>(args)...));
  };
  const OptimizationConfig& train = config.train;
  if (static_cast<std::uint64_t>(train.batch) > facts.samples_per_epoch) {
    warn(
        "train.batch {} is more than the {} samples of an epoch, so a step sees some twice; take "
        "at "
        "most {}, or more text",
        train.batch, facts.samples_per_epoch, facts.samples_per_epoch);
  }
  const double tokens = double{1} * train.steps * train.batch * config.model.context;
  if (tokens < static_cast<double>(facts.parameters)) {
    warn(
        "the run sees {:.3g} tokens, fewer than the model's {:.3g} parameters; raise train.steps "
        "or "
        "train.batch, or take a smaller model",
        tokens, static_cast<double>(facts.parameters));
  }
  const int micro_steps = config.sharding.micro_steps;
  if (micro_steps > 1 && train.batch == facts.ranks * micro_steps) {
    warn(
        "each of {} ranks computes one sample at a time, {} times a step; if memory allows, "
        "train.micro_steps {} computes larger products",
        facts.ranks, micro_steps, (micro_steps + 1) / 2);
  }
  if (const int over = train.batch % (facts.ranks * micro_steps); over != 0) {
    warn(
        "train.batch {} does not divide by {} ranks x {} micro-steps: some compute {} samples "
        "where "
        "others wait with {}; {} divides",
        train.batch, facts.ranks, micro_steps, train.batch / (facts.ranks * micro_steps) + 1,
        train.batch / (facts.ranks * micro_steps), train.batch + facts.ranks * micro_steps - over);
  }
  const double raised = peak_learning_rate(train) / train.learning_rate;
  if (raised > 1 && train.warmup_steps == 0) {
    warn(
        "train.base_batch {} raises the learning rate {:.3g} times to {:.3g} at once; give "
        "train.warmup_steps, such as {}",
        train.base_batch, raised, peak_learning_rate(train), std::max(1, train.steps / 20));
  }
  return warnings;
}

}  // namespace sprat::train
