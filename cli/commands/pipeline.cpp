// `sprat pipeline`: what the ranks of a pipeline do in which order, and what that takes.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/pipeline/picture.hpp"
#include "cli/pipeline/report.hpp"
#include "cli/size_value.hpp"
#include "cli/whole_number.hpp"
#include "comm/base/whole_file.hpp"
#include "mp/actions.hpp"
#include "mp/passes/passes.hpp"
#include "mp/schedule.hpp"
#include "mp/simulate.hpp"
#include "mp/text.hpp"
#include "mp/validate.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

struct PipelineArguments {
  std::string schedule = "interleaved";  ///< SMP's default.
  mp::PipelineShape shape{.ranks = 4, .microbatches = 8};
  mp::StageCosts costs;  ///< Of one micro-batch on all stages of a rank.
  std::uint64_t microbatch_bytes = 0;
  double latency = 0;
  int cores = 0;
  std::string recompute;              ///< Empty, "all", or stages.
  double kept = 0;                    ///< Of activations, where they are computed again.
  mp::Offload offload{.horizon = 0};  ///< Of horizon 0: none.
  std::string csv;                    ///< Read instead of a schedule that is made.
  std::string write_csv, svg, trace;
  bool communicate = false, all = false, json = false;
  int message_capacity = mp::unbounded_messages;
};

/// What nobody has, and what would take minutes to plan.
constexpr int most_ranks = 1024;
constexpr long most_forwards = 1 << 20;

/// Why `text` is no duration: for CLI::Option::check().
std::string seconds_check(const std::string& text) {
  constexpr double most = 1e6;
  double value = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && stop == text.data() + text.size();
  return whole && value >= 0 && value <= most
             ? ""
             : fmt::format("\"{}\" is not a number of seconds from 0 to {:.0f}", text, most);
}

const mp::ScheduleKind& kind_named(const std::string& name) {
  try {
    return mp::schedule_named(name);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

mp::Schedule made_for(const mp::ScheduleKind& kind, const mp::PipelineShape& shape) {
  const std::string refusal = kind.refusal(shape);
  if (!refusal.empty()) {
    throw UsageError(refusal);
  }
  return mp::make_schedule(kind, shape);
}

/// A rank's stages share what is said of the rank, so that cutting it further makes no more work.
mp::PipelineCosts costs_of(const PipelineArguments& request, const mp::Schedule& schedule) {
  mp::PipelineCosts costs = uniform_costs(schedule, request.costs);
  costs.latency = request.latency;
  costs.cores = request.cores;
  const std::vector<int> stages = stages_by_rank(schedule);
  const std::uint64_t bytes =
      request.microbatch_bytes == 0 ? nominal_bytes : request.microbatch_bytes;
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const int share = stages[std::size_t(schedule.rank_of_stage[stage])];
    mp::StageCosts& one = costs.stages[stage];
    one.recompute = one.forward;
    for (double* seconds : {&one.forward, &one.backward_input, &one.backward_weight, &one.recompute,
                            &one.store, &one.load}) {
      *seconds /= share;
    }
    one.activation_bytes = bytes / std::uint64_t(share);
    one.input_bytes = std::uint64_t(request.kept * double(one.activation_bytes));
  }
  return costs;
}

/// Somebody's file may hold anything; ours are valid, or a test fails.
void require_valid(const mp::Schedule& schedule) {
  const std::vector<std::string> wrong = violations(schedule);
  if (!wrong.empty()) {
    const std::string more =
        wrong.size() > 1 ? fmt::format(" (and {} more)", wrong.size() - 1) : "";
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is no valid schedule: {}{}", schedule.name, wrong.front(), more));
  }
}

bool has_messages(const mp::Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& actions) {
    return std::ranges::any_of(actions, [](const mp::Action& action) {
      return mp::is_send(action.op) || mp::is_receive(action.op);
    });
  });
}

/// The stages that "all" or "0,3" names, by stage.
std::vector<bool> stages_named(const std::string& words, int stages) {
  std::vector<bool> named(std::size_t(stages), words == "all");
  for (const std::string& word : CLI::detail::split(words == "all" ? "" : words, ',')) {
    int stage = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), stage);
    if (word.empty()) {
      continue;
    }
    if (error != std::errc{} || stop != word.data() + word.size() || stage < 0 || stage >= stages) {
      throw UsageError(fmt::format("--recompute takes all, or stages from 0 to {} as 0,1; not {}",
                                   stages - 1, word));
    }
    named[std::size_t(stage)] = true;
  }
  return named;
}

/// With what was asked for beside computation. Whoever reads the file of another may find messages
/// there already.
mp::Schedule passed(const PipelineArguments& request, mp::Schedule schedule) {
  if (!request.recompute.empty()) {
    const std::vector<bool> dropped = stages_named(request.recompute, schedule.stages());
    schedule =
        recompute(schedule, [&](int stage, int) { return bool(dropped[std::size_t(stage)]); });
  }
  if (request.offload.horizon > 0) {
    schedule = offload(schedule, request.offload);
  }
  return request.communicate && !has_messages(schedule) ? communicate(schedule) : schedule;
}

PlayedSchedule play(const PipelineArguments& request, const mp::Schedule& given) {
  require_valid(given);
  mp::Schedule schedule = passed(request, given);
  const mp::PipelineCosts costs = costs_of(request, schedule);
  mp::Timeline made = simulate(schedule, costs, request.message_capacity);
  const bool messages = has_messages(schedule);
  const auto capacity = messages ? least_message_capacity(schedule) : std::nullopt;
  return {.schedule = std::move(schedule),
          .made = std::move(made),
          .messages = messages,
          .message_capacity = capacity,
          .microbatch_bytes = request.microbatch_bytes};
}

mp::Schedule schedule_of(const PipelineArguments& request) {
  return request.csv.empty() ? made_for(kind_named(request.schedule), request.shape)
                             : mp::schedule_of_csv(read_whole_file(request.csv), request.csv);
}

/// Of the same schedule where each send waits for its receive.
double blocking_bubble(const PipelineArguments& request, const PlayedSchedule& played) {
  const mp::Schedule spoken = played.messages ? played.schedule : communicate(played.schedule);
  return simulate(spoken, costs_of(request, spoken), 0).bubble;
}

/// A line for each schedule that takes the shape. Where nobody said how many stages a rank has,
/// those that want two get two.
void compare(const PipelineArguments& request, bool stages_given) {
  if (!request.json) {
    fmt::print("{}", comparison_heading());
  }
  for (const mp::ScheduleKind* kind : mp::all_schedules()) {
    mp::PipelineShape shape = request.shape;
    if (!stages_given && !kind->refusal(shape).empty()) {
      shape.stages_per_rank = 2;
    }
    // The others are not worth a line: asked for by name, they say what they lack.
    if (kind->refusal(shape).empty()) {
      const PlayedSchedule played = play(request, mp::make_schedule(*kind, shape));
      fmt::print("{}", request.json ? json_of(played).dump() + "\n"
                                    : comparison_line(played, blocking_bubble(request, played)));
    }
  }
}

void require_reasonable(const mp::PipelineShape& shape) {
  // Divided, for the product may wrap.
  if (long(shape.ranks) * shape.stages_per_rank > most_forwards / shape.microbatches) {
    throw UsageError(fmt::format(
        "{} micro-batches on {} ranks of {} stages are more than the {} forwards that are planned "
        "at once",
        shape.microbatches, shape.ranks, shape.stages_per_rank, most_forwards));
  }
}

void show_schedule(const PipelineArguments& request) {
  const PlayedSchedule played = play(request, schedule_of(request));
  if (!request.write_csv.empty()) {
    write_whole_file(request.write_csv, to_csv(played.schedule));
  }
  if (!request.svg.empty()) {
    write_whole_file(request.svg, to_svg(played.schedule, played.made));
  }
  if (!request.trace.empty()) {
    write_whole_file(request.trace, to_trace(played.schedule, played.made));
  }
  fmt::print("{}", request.json ? json_of(played).dump() + "\n" : page_of(played));
}

void add_costs(CLI::App& app, PipelineArguments& r) {
  struct Cost {
    const char* option;
    double& seconds;
    const char* meaning;
  };
  for (const Cost& cost : {
           Cost{"--forward", r.costs.forward, "Seconds of a micro-batch's forward on a rank"},
           Cost{"--backward-input", r.costs.backward_input, "Of the gradient of its input"},
           Cost{"--backward-weight", r.costs.backward_weight, "Of the gradients of the weights"},
           Cost{"--latency", r.latency, "Seconds that a message takes"},
           Cost{"--store", r.costs.store, "To move a micro-batch's activations to a tier"},
           Cost{"--load", r.costs.load, "To bring them back"},
       }) {
    app.add_option(cost.option, cost.seconds, cost.meaning)
        ->check(seconds_check)
        ->capture_default_str();
  }
  app.add_option("--activations", r.microbatch_bytes,
                 "Bytes that a rank keeps of a micro-batch, such as 300M; shown in the table")
      ->transform(SizeValue(false));
  app.add_option("--kept", r.kept, "Part of the activations that --recompute keeps, from 0 to 1")
      ->check(RealNumber(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--cores", r.cores, "Ranks share so many cores; default: each has one")
      ->check(WholeNumber(1));
}

/// The options that say which schedule; a file says all of that.
std::vector<CLI::Option*> add_shape(CLI::App& app, PipelineArguments& r) {
  std::string names;
  for (const mp::ScheduleKind* kind : mp::all_schedules()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind->name);
  }
  return {
      app.add_option("--schedule", r.schedule, names)->capture_default_str(),
      app.add_option("-p,--ranks", r.shape.ranks, "Ranks of one pipeline")
          ->check(CLI::Range(1, most_ranks))
          ->capture_default_str(),
      app.add_option("-m,--microbatches", r.shape.microbatches, "Micro-batches of a step")
          ->check(WholeNumber(1))
          ->capture_default_str(),
      app.add_option("--stages-per-rank", r.shape.stages_per_rank, "Stages of each rank")
          ->check(WholeNumber(1))
          ->capture_default_str(),
      app.add_option("--active", r.shape.active_microbatches,
                     "Micro-batches between the forward and the backward of their first stage; "
                     "default: as the schedule likes")
          ->check(WholeNumber(1)),
  };
}

Action prepare_pipeline(CLI::App& app) {
  auto r = std::make_shared<PipelineArguments>();
  const std::vector<CLI::Option*> shape = add_shape(app, *r);
  const CLI::Option* stages = app.get_option("--stages-per-rank");
  auto* csv = app.add_option("--csv", r->csv,
                             "Read the schedule from this file of torch.distributed.pipelining");
  for (CLI::Option* option : shape) {
    csv->excludes(option);
  }
  add_costs(app, *r);
  app.add_option("--recompute", r->recompute,
                 "Drop activations and compute the forward once more: all, or stages as 0,1");
  app.add_option("--offload", r->offload.horizon,
                 "Store activations, and load them so many computations ahead of their backward")
      ->check(WholeNumber(1));
  app.add_flag("--communicate", r->communicate, "Show and play sends and receives");
  const CLI::Option* capacity =
      app.add_option("--capacity", r->message_capacity,
                     "The same, and so many messages from one rank to another have room on their "
                     "way; default: any number")
          ->check(WholeNumber(0));
  auto* all = app.add_flag("--all", r->all, "A line for each schedule that takes the shape")
                  ->excludes(csv)
                  ->excludes("--schedule");
  app.add_option("--write-csv", r->write_csv, "Write it as torch.distributed.pipelining reads it")
      ->excludes(all);
  app.add_option("--svg", r->svg, "Draw it to this file")->excludes(all);
  app.add_option("--trace", r->trace, "Write what chrome://tracing and ui.perfetto.dev open")
      ->excludes(all);
  app.add_flag("--json", r->json, "One JSON object instead");
  return [r, stages, capacity] {
    r->communicate = r->communicate || capacity->count() > 0;
    require_reasonable(r->shape);
    if (r->all) {
      compare(*r, stages->count() > 0);
    } else {
      show_schedule(*r);
    }
    return 0;
  };
}

}  // namespace

extern const Command pipeline_command;
const Command pipeline_command = {
    "pipeline",
    "What the ranks of a pipeline do in which order, and how long they wait",
    R"(Makes the schedule, looks whether it is valid, plays it in virtual time, and draws it: a line for each
rank from left to right, dots where it waits. No rank runs. docs/mp.md tells how to choose.

bubble: the part of the time in which ranks do not compute. computes: seconds at work. exposed: waited for
messages that were on their way. stalls: waited for activations that were loaded. holds: of how many
micro-batches the rank keeps the activations at most. With --all, blocking: the bubble where each send
waits for its receive. message capacity: how many messages from one rank to another must have room on
their way, or ranks wait for each other.
Seconds are of all stages of a rank together; a backward is the sum of its two parts.

Examples:
  sprat pipeline -p 4 -m 16 --all                        which schedule waits least, which holds least?
  sprat pipeline --schedule interleaved -p 4 -m 16 --active 6
  sprat pipeline --schedule zb_v --stages-per-rank 2 -p 4 -m 16 --svg p.svg --trace p.json
  sprat pipeline --schedule 1f1b --latency 0.1           what do slow messages cost?
  sprat pipeline --schedule 1f1b --recompute all --kept 0.1 --activations 300M
  sprat pipeline --schedule 1f1b --cores 2               four ranks that share two cores
  sprat pipeline --schedule 1f1b --write-csv s.csv       for _PipelineScheduleRuntime of PyTorch
  sprat pipeline --csv s.csv                             is it valid, and how good is it?
)",
    prepare_pipeline,
};

}  // namespace sprat::cli
