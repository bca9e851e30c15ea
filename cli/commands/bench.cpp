// `sprat bench`: times every size of a collective, and checks every element.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/measure.hpp"
#include "cli/bench/report.hpp"
#include "cli/bench/sweep.hpp"
#include "cli/bench/tune.hpp"
#include "cli/command.hpp"
#include "cli/complain.hpp"
#include "cli/job.hpp"
#include "cli/progress/live_line.hpp"
#include "cli/size_value.hpp"
#include "cli/tree.hpp"
#include "cli/whole_number.hpp"
#include "collectives/plan/tuning.hpp"

namespace sprat::cli {
namespace {

struct BenchArguments {
  std::string collective = "all", dtype = "f32", op = "sum", memory = "private";
  std::uint64_t min_bytes = 8, max_bytes = 64ULL << 20, factor = 4;
  int samples = 0, warmup = 1, virtual_ranks = 0;
  int check = 1;
  bool in_place = false, quiet = false;
  std::string algorithm, json, tuning, trace;
};

/// Those of `entries` called `wanted`, or all of them.
template <class Entry>
std::vector<Entry> select(std::span<const Entry> entries, const std::string& wanted,
                          const char* what) {
  std::vector<Entry> chosen;
  std::string names;
  for (const Entry& entry : entries) {
    if (wanted == "all" || wanted == name(entry)) {
      chosen.push_back(entry);
    }
    names += std::string(" ") + name(entry);
  }
  if (chosen.empty()) {
    throw UsageError(fmt::format("no {} \"{}\"; there are: all{}", what, wanted, names));
  }
  return chosen;
}

Sweep plan_sweep(const BenchArguments& request) {
  Sweep sweep;
  sweep.calls = select(all_bench_calls(), request.collective, "collective");
  sweep.dtypes = select(all_dtypes(), request.dtype, "dtype");
  sweep.ops = select(all_reduce_ops(), request.op, "op");
  if (request.factor < 2 || request.max_bytes < request.min_bytes) {
    throw UsageError("sizes go from -b up to -e by a factor -f of at least 2");
  }
  for (std::uint64_t bytes = request.min_bytes; bytes <= request.max_bytes;) {
    sweep.sizes.push_back(bytes);
    // Divided, for the product may wrap, and the sizes would start again.
    if (bytes > request.max_bytes / request.factor) {
      break;
    }
    // -b 0 starts with an empty call, and 0 times the factor would stay 0.
    bytes = std::max<std::uint64_t>(bytes * request.factor, 1);
  }
  if (sweep.rows() == 0) {
    throw UsageError(fmt::format("{} does not reduce {}", request.op, request.dtype));
  }
  sweep.memory =
      request.memory == "shared" ? Buffers::Kind::shared_memory : Buffers::Kind::private_memory;
  sweep.in_place = request.in_place;
  sweep.check = request.check == 1;
  sweep.effort.warmup = request.warmup;
  if (request.samples > 0) {
    sweep.effort.samples = request.samples;
  }
  // A long list gets less time for each row, so that the whole stays a matter of minutes.
  sweep.effort.budget = std::chrono::duration<double>(
      std::clamp(120.0 / static_cast<double>(sweep.rows()), 0.02, 0.5));
  return sweep;
}

/// Rules that prefer `algorithm` wherever a benched collective has one of that name.
std::string rules_for(const std::string& algorithm, const std::vector<BenchCall>& benched) {
  std::string rules, names;
  for (const BenchCall& call : benched) {
    const auto known = call.collective;
    if (known && collectives::find_algorithm(*known, algorithm) != nullptr) {
      rules += fmt::format("{} {}; ", name(*known), algorithm);
    }
  }
  if (!rules.empty()) {
    return rules;
  }
  for (const collectives::Algorithm* known : collectives::all_algorithms()) {
    names += fmt::format(" {}/{}", name(known->collective), known->name);
  }
  throw UsageError(fmt::format("no algorithm \"{}\" here; there are:{}", algorithm, names));
}

/// One rank's part in a sweep.
class Bench {
 public:
  Bench(Communicator& world, const Sweep& sweep, const Config& config,
        const BenchArguments& request)
      : world_(world),
        sweep_(sweep),
        buffers_(sweep.memory, sweep.sizes.back()),
        grouping_(std::make_shared<collectives::Grouping>(world.hosts())),
        rules_(collectives::rules_of(config)),
        line_(world.rank() == 0 && !request.quiet) {
    if (world.rank() == 0) {
      report_.emplace(request.json);
    }
  }

  /// Wrong elements on all ranks.
  std::uint64_t run() {
    for (const BenchCall& call : sweep_.calls) {
      fresh_table_ = true;
      for (DType dtype : sweep_.dtypes) {
        for (ReduceOp op : sweep_.ops_for(call, dtype)) {
          run_sizes(call, dtype, op);
        }
      }
    }
    return wrong_;
  }

 private:
  void run_sizes(const BenchCall& call, DType dtype, ReduceOp op) {
    const Oracle oracle(call, dtype, op, world_.size(), world_.rank());
    for (std::size_t size : sweep_.sizes) {
      const Task task{.call = call,
                      .dtype = dtype,
                      .op = op,
                      .in_place = sweep_.in_place && can_be_in_place(call),
                      .count = count_for(call, dtype, world_.size(), size),
                      .root = rows_++ % world_.size()};
      show(task, size);
      const Row row = run_task(task, oracle);
      line_.clear();
      wrong_ += row.wrong.value_or(0);
      if (report_) {
        if (fresh_table_) {
          report_->begin(call, row);
        }
        report_->add(row);
      }
      fresh_table_ = false;
    }
  }

  void show(const Task& task, std::size_t size) {
    line_.show(
        {{fmt::format("row {} of {}", rows_, sweep_.rows()), 2},
         {fmt::format("{} of {} {}", name(task.call), readable_bytes(size), name(task.dtype)), 1}});
  }

  Row run_task(const Task& task, const Oracle& oracle) {
    Run run(world_, task, oracle, buffers_);
    Row row{.task = task,
            .ranks = world_.size(),
            .hosts = grouping_->hosts(),
            .memory = sweep_.memory,
            .algorithm = chosen_algorithm(task),
            .timing = {},
            .wrong = {}};
    run.prepare();
    std::uint64_t wrong = 0;
    if (sweep_.check) {
      run();
      wrong = run.wrong();
    }
    row.timing = measure(
        world_, [&run] { run(); }, sweep_.effort);
    if (sweep_.check) {
      // In place, the timed calls have fed results back as inputs; out of place nothing may change.
      wrong += task.in_place ? 0 : run.wrong();
      row.wrong = total(wrong);
    }
    return row;
  }

  std::uint64_t total(std::uint64_t mine) {
    world_.all_reduce(elements(std::span(&mine, 1)), ReduceOp::sum).wait();
    return mine;
  }

  std::string chosen_algorithm(const Task& task) const {
    const auto problem = problem_of(task, grouping_, world_.rank());
    return problem ? collectives::choose(*problem, rules_).name : "messages";
  }

  Communicator& world_;
  const Sweep& sweep_;
  Buffers buffers_;
  std::shared_ptr<const collectives::Grouping> grouping_;
  collectives::Rules rules_;
  std::optional<Report> report_;
  LiveLine line_;
  std::uint64_t wrong_ = 0;
  int rows_ = 0;
  bool fresh_table_ = true;
};

int run_bench(const BenchArguments& request) {
  const Sweep sweep = plan_sweep(request);
  Config config = with_trace(Config::from_environment(), request.trace);
  if (!request.algorithm.empty()) {
    // In front of what SPRAT_ALGORITHM says: the first rule that applies and fits chooses.
    config.algorithm = rules_for(request.algorithm, sweep.calls) + config.algorithm;
  }
  return run_in_job(config, request.virtual_ranks, [&](Communicator& world) {
    if (!request.tuning.empty()) {
      tune(world, sweep, config, request.tuning);
      return 0;
    }
    // Every rank has the sum, so that all end with the same status and a launcher kills nobody.
    const std::uint64_t wrong = Bench(world, sweep, config, request).run();
    if (wrong > 0 && world.rank() == 0) {
      complain(fmt::format("{} wrong elements; see the column #wrong", wrong));
    }
    return wrong > 0 ? 1 : 0;
  });
}

Action prepare_bench(CLI::App& app) {
  auto r = std::make_shared<BenchArguments>();
  const auto size = SizeValue(false);  // 64M is 64 * 2^20
  std::string names;
  for (const BenchCall& call : all_bench_calls()) {
    names += fmt::format("{}, ", name(call));
  }
  app.add_option("COLLECTIVE", r->collective, names + "or all")->capture_default_str();
  app.add_option("-b,--min-bytes", r->min_bytes, "Smallest size")->transform(size);
  app.add_option("-e,--max-bytes", r->max_bytes, "Largest size")->transform(size);
  app.add_option("-f,--factor", r->factor, "From one size to the next")->capture_default_str();
  app.add_option("-n,--iterations", r->samples,
                 "Samples of each row (default: what fits a time that shrinks with the list)")
      ->check(WholeNumber(1));
  app.add_option("-w,--warmup", r->warmup, "Operations before the first sample")
      ->check(WholeNumber(0))
      ->capture_default_str();
  app.add_option("-d,--dtype", r->dtype, "Element type, or all")->capture_default_str();
  app.add_option("-o,--op", r->op, "sum, prod, min, max, avg, band, bor, bxor, land, lor or all")
      ->capture_default_str();
  app.add_option("-c,--check", r->check, "1: compare every element, untimed; 0: do not")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("--memory", r->memory, "private: any memory; shared: sprat::Memory")
      ->check(CLI::IsMember({"private", "shared"}))
      ->capture_default_str();
  app.add_flag("--in-place", r->in_place, "Output over input where the collective allows");
  app.add_option("--algorithm", r->algorithm, "Prefer this algorithm (names: sprat info)");
  app.add_option("--tune", r->tuning, "Time every algorithm that fits; write rules to this file")
      ->excludes("--algorithm");
  app.add_option("--json", r->json, "Also write one JSON object a row to this file")
      ->excludes("--tune");
  app.add_flag("--quiet", r->quiet, "No line of how far it is on a terminal");
  app.add_option("--trace", r->trace, "Write a timeline of all ranks, which Perfetto opens")
      ->type_name("FILE");
  app.add_option("--virtual-ranks", r->virtual_ranks, "Ranks as threads of this process")
      ->check(CLI::Range(1, 4096));
  return [r] { return run_bench(*r); };
}

}  // namespace

extern const Command bench_command;
const Command bench_command = {
    "bench",
    "Time the collectives and check their results",
    R"(The table is that of nccl-tests. size: the larger of a rank's input and output. time: the median over
samples, each the slowest rank's; p99 likewise. algbw: size / time. busbw: what a link carries,
comparable between rank counts. #wrong: elements that differ from the exact result on any rank. Roots
take turns; blocks of the v-forms are uneven, some of them empty, and add up to the size.

--tune FILE times all algorithms side by side instead, and writes rules for what is clearly faster than
the usual choice (* marks it). SPRAT_TUNING=FILE puts them in force; docs/tuning.md tells more.

Examples:
  mpirun -np 4 sprat bench all_reduce                           8 B to 64 MiB of f32
  mpirun -np 4 sprat bench all -d all -o all -e 1M              is everything right?
  mpirun -np 4 sprat bench all_gather -b 1M -e 1M --memory shared --json rows.jsonl
  sprat bench all_reduce --virtual-ranks 4 --algorithm direct   without a launcher
  mpirun -np 4 sprat bench all --tune four.rules                which algorithms suit this machine?
)",
    prepare_bench,
};

}  // namespace sprat::cli
