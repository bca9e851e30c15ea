// Measures algorithms in turns on the same buffers, each on a communicator that chooses it.
#include "cli/bench/tune.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>

#include "cli/bench/choice.hpp"
#include "cli/bench/report.hpp"
#include "collectives/plan/tuning.hpp"
#include "comm/base/check.hpp"
#include "comm/host/topology.hpp"
#include "sprat/sprat.h"

namespace sprat::cli {
namespace {

/// An algorithm, and the communicator that is told to choose it for one collective.
struct Candidate {
  std::string algorithm;
  Communicator* world;
};

/// "2 cores of Intel(R) Xeon(R) ..."
std::string machine(const Config& config) {
  const comm::Topology topology = comm::read_topology(config);
  const std::string model = topology.packages.empty() ? "" : topology.packages.front().model;
  return fmt::format("{} cores of {}", topology.cores.size(),
                     model.empty() ? "an unnamed processor" : model);
}

/// One rank's part.
class Tuner {
 public:
  Tuner(Communicator& world, const Sweep& sweep, const Config& config)
      : world_(world),
        sweep_(sweep),
        config_(config),
        buffers_(sweep.memory, sweep.sizes.back()),
        grouping_(std::make_shared<collectives::Grouping>(world.hosts())),
        rules_(collectives::rules_of(config)) {}

  /// The rules as text, a line each.
  std::string run() {
    std::string lines;
    for (const BenchCall& call : sweep_.calls) {
      if (!call.collective || call.uneven) {
        continue;
      }
      for (DType dtype : sweep_.dtypes) {
        const std::vector<ReduceOp> ops = sweep_.ops_for(call, dtype);
        if (!ops.empty()) {  // rules do not tell operations apart: one stands for all
          lines += tune(call, dtype, ops.front());
        }
      }
    }
    return lines;
  }

 private:
  std::string tune(const BenchCall& call, DType dtype, ReduceOp op) {
    const Oracle oracle(call, dtype, op, world_.size(), world_.rank());
    std::vector<Measured> findings;
    for (std::size_t size : sweep_.sizes) {
      const Task task{.call = call,
                      .dtype = dtype,
                      .op = op,
                      .in_place = sweep_.in_place && can_be_in_place(call),
                      .count = count_for(call, dtype, world_.size(), size)};
      if (task.count == 0) {
        continue;  // all algorithms are as fast for nothing
      }
      const auto problem = problem_of(task, grouping_, world_.rank());
      const std::vector<Candidate> fitting = candidates(*problem);
      if (fitting.size() < 2) {
        continue;
      }
      findings.push_back(measure_all(task, *problem, oracle, fitting));
    }
    std::string lines;
    for (const Stretch& stretch : preferred(findings)) {
      lines += line(call, dtype, stretch);
    }
    return lines;
  }

  /// Every algorithm that may be chosen for the problem.
  std::vector<Candidate> candidates(const collectives::Problem& problem) {
    std::vector<Candidate> fitting;
    for (const collectives::Algorithm* algorithm : collectives::all_algorithms()) {
      // A rule for what the configured order forbids would never apply.
      const bool allowed =
          config_.order == ReduceOrder::any || algorithm->order == ReduceOrder::canonical;
      if (algorithm->collective != problem.collective || !allowed || !algorithm->fits(problem)) {
        continue;
      }
      // Rules and cached plans belong to a communicator, so candidates that take turns have one
      // each.
      if (fitting.size() == worlds_.size()) {
        worlds_.push_back(world_.duplicate());
      }
      Communicator& world = worlds_[fitting.size()];
      Config config = config_;
      config.algorithm = fmt::format("{} {}", name(problem.collective), algorithm->name);
      collectives::follow(world, collectives::rules_of(config));
      fitting.push_back({algorithm->name, &world});
    }
    return fitting;
  }

  Measured measure_all(const Task& task, const collectives::Problem& problem, const Oracle& oracle,
                       const std::vector<Candidate>& fitting) {
    std::vector<std::unique_ptr<Run>> runs;
    std::vector<std::function<void()>> operations;
    for (const Candidate& candidate : fitting) {
      runs.push_back(std::make_unique<Run>(*candidate.world, task, oracle, buffers_));
      operations.emplace_back(std::ref(*runs.back()));
      runs.back()->prepare();
      (*runs.back())();
      refuse_wrong(runs.back()->wrong(), problem, candidate.algorithm);
    }
    const auto samples = measure_in_turns(world_, operations, sweep_.effort);
    Measured finding{.bytes = problem.payload_bytes(),
                     .usual = collectives::choose(problem, rules_).name,
                     .ratio = {}};
    const auto before = std::ranges::find(fitting, finding.usual, &Candidate::algorithm);
    const auto& base = samples[static_cast<std::size_t>(before - fitting.begin())];
    std::string report = fmt::format("{:<15} {:>11} B", name(task.call), finding.bytes);
    for (std::size_t i = 0; i < fitting.size(); ++i) {
      std::vector<double> ratios;
      // Candidates took turns, so samples of one number lie side by side in time: their ratio
      // leaves out what slowed down all of them for a while.
      for (std::size_t k = 0; k < base.size(); ++k) {
        ratios.push_back(samples[i][k] / base[k]);
      }
      finding.ratio[fitting[i].algorithm] = median(std::move(ratios));
      report += fmt::format("  {}{} {:.2f} us", fitting[i].algorithm,
                            fitting[i].algorithm == finding.usual ? "*" : "", median(samples[i]));
    }
    if (world_.rank() == 0) {
      fmt::print("{}\n", report);
      std::fflush(stdout);
    }
    return finding;
  }

  /// Rules never prefer what gives wrong results.
  void refuse_wrong(std::uint64_t mine, const collectives::Problem& problem,
                    const std::string& algorithm) {
    world_.all_reduce(elements(std::span(&mine, 1)), ReduceOp::sum).wait();
    if (mine > 0) {
      throw Error(ErrorCode::internal,
                  text(name(problem.collective), " ", algorithm, " of ", problem.payload_bytes(),
                       " bytes gives ", mine, " wrong elements"));
    }
  }

  std::string line(const BenchCall& call, DType dtype, const Stretch& stretch) const {
    using Condition = collectives::Condition;
    collectives::Rule rule;
    rule.algorithm = collectives::find_algorithm(*call.collective, stretch.algorithm);
    rule.least_bytes = stretch.least_bytes;
    rule.most_bytes = stretch.most_bytes;
    const auto equal = [](Condition::Property property, int value) {
      return Condition{property, Condition::Relation::equal, value};
    };
    rule.conditions = {equal(Condition::Property::ranks, world_.size()),
                       equal(Condition::Property::hosts, grouping_->hosts())};
    if (grouping_->hosts() == 1 && can_be_in_place(call)) {
      rule.conditions.push_back(equal(Condition::Property::out_of_place, sweep_.in_place ? 0 : 1));
    }
    // f32 stands for all types unless others are asked for.
    if (sweep_.dtypes != std::vector{DType::f32}) {
      rule.dtype = dtype;
    }
    return fmt::format("{:<64} # {:.2f} to {:.2f} of the usual time\n", describe(rule),
                       stretch.best, stretch.worst);
  }

  Communicator& world_;
  const Sweep& sweep_;
  const Config& config_;
  Buffers buffers_;
  std::shared_ptr<const collectives::Grouping> grouping_;
  collectives::Rules rules_;
  std::deque<Communicator> worlds_;  ///< Candidates refer to them.
};

std::string rules_heading(Communicator& world, const Sweep& sweep, const Config& config) {
  const collectives::Grouping grouping(world.hosts());
  return fmt::format(
      "# Rules for SPRAT_TUNING, measured by sprat bench --tune: sprat {}, {:%Y-%m-%d},\n"
      "# {} ranks on {} host{}, {}, {} memory, order {}.\n",
      sprat_version(), fmt::gmtime(std::time(nullptr)), world.size(), grouping.hosts(),
      grouping.hosts() == 1 ? "" : "s", machine(config), name(sweep.memory), name(config.order));
}

}  // namespace

void tune(Communicator& world, const Sweep& sweep, const Config& config, const std::string& path) {
  const std::string unfinished = path + ".part";
  std::ofstream file;
  if (world.rank() == 0) {
    file.open(unfinished);
    need(file.is_open(), "cannot write \"", unfinished, "\"");
  }
  const std::string rules = Tuner(world, sweep, config).run();
  if (world.rank() != 0) {
    return;
  }
  file << rules_heading(world, sweep, config) << rules;
  file.close();
  need(!file.fail() && std::rename(unfinished.c_str(), path.c_str()) == 0, "cannot write \"", path,
       "\"");
  fmt::print("{}", rules.empty() ? "What is usual is best everywhere.\n" : rules);
}

}  // namespace sprat::cli
