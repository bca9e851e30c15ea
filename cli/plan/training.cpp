// Options become a request, and the result of the search a table and files.
#include "cli/plan/training.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>

#include "cli/plan/memory_bars.hpp"
#include "cli/size_value.hpp"
#include "cli/whole_number.hpp"
#include "comm/base/whole_file.hpp"
#include "comm/host/topology.hpp"
#include "planning/report.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::cli {
namespace {

struct PlanArguments {
  std::string model, machine = "p4d.24xlarge", precision = "bf16", wire;
  std::string gradient_order = name(GradientOrder::sequence);
  std::string json, smp, svg, trace, calibration, data = "text.txt";
  std::uint64_t batch_tokens = 4 << 20;
  std::int64_t sequence = 2048;
  int hosts = 1;
  planning::Pins pins;
};

void write_plan(const std::string& path, const std::string& text) {
  write_whole_file(path, text);
  fmt::print("wrote {}\n", path);
}

planning::ModelShape planned_model(const std::string& word) {
  return word.ends_with(".json") ? planning::shape_from_json(read_whole_file(word), word)
                                 : planning::shape_from_words(word);
}

/// Ranks of a job are alike, and their rates are of the table: what is neither is told by words.
void check_devices(const comm::Topology& topology, const collectives::Machine& like,
                   const std::string& file) {
  std::set<std::string> models;
  for (const comm::Device& device : topology.devices) {
    if (device.kind == comm::Device::Kind::gpu) {
      models.insert(device.model);
    }
  }
  // Of a machine without GPUs the table has one, whose ranks are cores.
  const bool known = models.empty() || (models.size() == 1 && like.name != "c5n");
  if (!known) {
    throw UsageError(fmt::format(
        "--machine {}: its {} GPUs are {}, and {}; name a machine that comes near instead, as "
        "--machine g5,ranks={},rails={}",
        file, like.ranks, fmt::join(models, " and "),
        models.size() > 1 ? "the ranks of a plan are alike" : "the plan's table has no such GPU",
        like.ranks, like.rails));
  }
}

/// A name with changes, or an hwloc file with changes.
planning::TrainingMachine training_machine(const std::string& words) {
  const std::size_t comma = std::min(words.find(','), words.size());
  const std::string base = words.substr(0, comma);
  if (!base.ends_with(".xml")) {
    return planning::machine_from(words);
  }
  const comm::Topology topology = comm::parse_topology(read_whole_file(base));
  collectives::Machine network = collectives::machine_of(topology);
  check_devices(topology, network, base);
  if (comma < words.size()) {
    collectives::change(network, std::string_view(words).substr(comma + 1));
  }
  return planning::machine_of(network);
}

DType planned_dtype(const char* option, const std::string& word, std::initializer_list<DType> all) {
  std::string known;
  for (const DType one : all) {
    if (word == name(one)) {
      return one;
    }
    known += fmt::format(" {}", name(one));
  }
  throw UsageError(fmt::format("{} is \"{}\"; it is one of:{}", option, word, known));
}

/// What was typed, checked in the order in which it stands in --help.
planning::PlanRequest plan_request(const PlanArguments& given) {
  planning::PlanRequest request{.model = planned_model(given.model),
                                .machine = training_machine(given.machine),
                                .hosts = given.hosts,
                                .sequence = given.sequence};
  if (!given.calibration.empty()) {
    request.machine.measured =
        planning::parse_calibration(read_whole_file(given.calibration), given.calibration);
  }
  request.precision =
      planned_dtype("--precision", given.precision, {DType::bf16, DType::f16, DType::f32});
  const bool tree = given.gradient_order == name(GradientOrder::tree);
  request.gradient_order = tree ? GradientOrder::tree : GradientOrder::sequence;
  // A tree over ranks of several micro-batches has its bits only if no rank's sum is rounded.
  request.wire = given.wire.empty() ? (tree ? DType::f32 : request.precision)
                                    : planned_dtype("--wire", given.wire,
                                                    {DType::f32, DType::bf16, DType::f16, DType::i8,
                                                     DType::f8e4m3, DType::f8e5m2});
  if (tree && request.wire != DType::f32) {
    throw UsageError(fmt::format(
        "--gradient-order tree has the same bits on any ranks where gradients travel as f32, and "
        "--wire is {}; leave it out",
        name(request.wire)));
  }
  if (tree && !given.smp.empty()) {
    throw UsageError("--smp: SMP has no key for --gradient-order tree; write --json FILE");
  }
  const auto tokens = static_cast<std::int64_t>(given.batch_tokens);
  if (tokens < 0) {
    throw UsageError(
        fmt::format("--batch-tokens {} is more than any batch has", given.batch_tokens));
  }
  request.batch_sequences = tokens / given.sequence;
  if (request.batch_sequences < 1) {
    throw UsageError(fmt::format("--batch-tokens {} is less than one --sequence of {}",
                                 given.batch_tokens, given.sequence));
  }
  return request;
}

int search_and_tell(const PlanArguments& given) {
  const planning::PlanRequest request = plan_request(given);
  // The file must hold the plan that the table shows, so only what SMP can say is searched.
  planning::Pins pins = given.pins;
  pins.smp_only = !given.smp.empty();
  const planning::SearchResult result = planning::search(request, pins);
  fmt::print("{}", planning::plan_text(request, result));
  // The table has said what holds least; scripts see by the exit code that nothing fits.
  if (result.plans.empty()) {
    return 1;
  }
  const planning::Plan& best = result.plans.front();
  if (!given.json.empty()) {
    write_plan(given.json, planning::train_json(request, best, given.data));
  }
  if (!given.smp.empty()) {
    write_plan(given.smp, planning::smp_json(request, best));
  }
  if (!given.svg.empty()) {
    write_plan(given.svg, memory_bars(request, result));
  }
  if (!given.trace.empty()) {
    write_plan(given.trace, planning::trace_of(request, best.arrangement));
  }
  return 0;
}

int plan_training(const PlanArguments& given) {
  if (given.model.empty()) {
    throw UsageError(
        "--model is missing: a config.json, numbers, or a name (try: sprat help plan)");
  }
  try {
    return search_and_tell(given);
  } catch (const Error& error) {
    // Words, and files that they name, are what was asked; all else is the machine's.
    if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unavailable) {
      throw UsageError(error.what());
    }
    throw;
  }
}

void add_plan_pins(CLI::App& app, planning::Pins& pins) {
  app.add_option("--tensor", pins.tensor, "Only this tensor_parallel_degree")
      ->check(WholeNumber(1));
  app.add_option("--pipeline", pins.pipeline, "Only this pipeline_parallel_degree")
      ->check(WholeNumber(1));
  app.add_option("--shards", pins.shards, "Only this hybrid_shard_degree")->check(WholeNumber(1));
  app.add_option("--context", pins.context, "Only this context_parallel_degree")
      ->check(WholeNumber(1));
  app.add_option("--microbatches", pins.microbatches, "Only so many")->check(WholeNumber(1));
  app.add_option("--strategy", pins.strategy, "Only ddp, zero1, zero2, zero3, hsdp or hfsdp")
      ->check(CLI::IsMember({"ddp", "zero1", "zero2", "zero3", "hsdp", "hfsdp"}));
  app.add_option("--recompute", pins.recompute, "Only with (true) or without (false)");
  app.add_option("--offload", pins.offload, "Only with (true) or without (false)");
}

}  // namespace

Action prepare_plan_training(CLI::App& app) {
  auto given = std::make_shared<PlanArguments>();
  app.add_option("--model", given->model, "config.json, numbers, or a name");
  app.add_option("--machine", given->machine, "An AWS type, or an hwloc FILE.xml; then changes")
      ->capture_default_str();
  app.add_option("--hosts", given->hosts, "How many of these machines")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--batch-tokens", given->batch_tokens, "Tokens of a step; k, M are powers of 1024")
      ->transform(SizeValue(false));
  app.add_option("--sequence", given->sequence, "Tokens of a sequence")
      ->check(WholeNumber(2))
      ->capture_default_str();
  app.add_option("--precision", given->precision, "bf16, f16 or f32")->capture_default_str();
  app.add_option("--wire", given->wire,
                 "As what gradients travel; default: as --precision, tree: f32");
  app.add_option("--gradient-order", given->gradient_order,
                 "tree: only plans with the same bits on any ranks, gradients in f32")
      ->check(CLI::IsMember({name(GradientOrder::sequence), name(GradientOrder::tree)}))
      ->capture_default_str();
  app.add_option("--calibration", given->calibration, "Measured rates, lines of JSON");
  app.add_option("--json", given->json, "Write the configuration of `sprat train` to this file");
  app.add_option("--data", given->data, "The text that it names")->capture_default_str();
  app.add_option("--smp", given->smp, "Write what sprat.torch.smp.init takes, and plan for that");
  app.add_option("--svg", given->svg, "Draw memory bars of the plans to this file");
  app.add_option("--trace", given->trace, "Write the best plan's passes for ui.perfetto.dev");
  add_plan_pins(app, given->pins);
  return [given] { return plan_training(*given); };
}

}  // namespace sprat::cli
