// `sprat simulate`: what a collective would take on machines that are not here.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/task.hpp"
#include "cli/command.hpp"
#include "cli/simulate/timeline.hpp"
#include "cli/size_value.hpp"
#include "cli/tree.hpp"
#include "collectives/plan/planner.hpp"
#include "collectives/simulate/cost_model.hpp"
#include "comm/base/whole_file.hpp"
#include "comm/host/topology.hpp"
#include "sprat/config.hpp"

namespace sprat::cli {
namespace {

using collectives::Algorithm;
using collectives::Machine;
using collectives::Problem;
using collectives::Simulation;

struct SimulateArguments {
  std::string collective, topology = "p4d", dtype = "f32", svg, trace;
  std::vector<std::string> algorithms;
  std::uint64_t min_bytes = 1 << 20, max_bytes = 1 << 30, factor = 4;
  int hosts = 2, ranks_per_host = 0;
  bool best = false, json = false;
};

/// "p4d,rails=2" or "rack.xml,wire_us=20".
Machine machine_from(const std::string& topology) {
  const std::size_t comma = std::min(topology.find(','), topology.size());
  const std::string base = topology.substr(0, comma);
  Machine machine;
  if (base.ends_with(".xml")) {
    machine = collectives::machine_of(comm::parse_topology(read_whole_file(base)));
  } else {
    machine = collectives::machine_named(base);
  }
  if (comma < topology.size()) {
    collectives::change(machine, std::string_view(topology).substr(comma + 1));
  }
  return machine;
}

/// Messages and uneven blocks are no collective that the simulator plans.
BenchCall call_from(const std::string& word) {
  std::string names;
  for (const BenchCall& call : all_bench_calls()) {
    if (!call.collective || call.uneven) {
      continue;
    }
    if (word == name(call)) {
      return call;
    }
    names += fmt::format(" {}", name(call));
  }
  throw UsageError(fmt::format("no collective \"{}\" to simulate; there are:{}", word, names));
}

DType dtype_from(const std::string& word) {
  const auto found = std::ranges::find(all_dtypes(), word, [](DType one) { return name(one); });
  if (found == all_dtypes().end()) {
    throw UsageError(fmt::format("no dtype \"{}\"; they are in `sprat help bench`", word));
  }
  return *found;
}

/// Not a plan: flat_ring_seconds().
constexpr const char* flat_ring = "flat_ring";

/// Null for the flat ring.
const Algorithm* algorithm_from(const std::string& word, collectives::Collective collective) {
  if (word == flat_ring) {
    return nullptr;
  }
  std::string names;
  for (const Algorithm* known : collectives::all_algorithms()) {
    if (known->collective != collective) {
      continue;
    }
    if (word == known->name) {
      return known;
    }
    names += fmt::format(" {}", known->name);
  }
  throw UsageError(fmt::format("no algorithm \"{}\" of {}; there are:{} {}", word, name(collective),
                               names, flat_ring));
}

/// One line of the table.
struct SimulatedRow {
  std::string algorithm;
  std::size_t bytes = 0;
  double seconds = 0;
  std::optional<Simulation> simulation;  ///< None: a closed form.
  bool chosen = false;                   ///< By the rules.
};

class Simulate {
 public:
  explicit Simulate(const SimulateArguments& request)
      : request_(request),
        machine_(machine_from(request.topology)),
        call_(call_from(request.collective)),
        dtype_(dtype_from(request.dtype)),
        rules_(collectives::rules_of(Config::from_environment())) {
    const int per_host = request.ranks_per_host > 0 ? request.ranks_per_host : machine_.ranks;
    for (int rank = 0; rank < request.hosts * per_host; ++rank) {
      host_of_.push_back(rank / per_host);
    }
    grouping_ = std::make_shared<collectives::Grouping>(host_of_);
    for (const std::string& algorithm : request.algorithms) {
      asked_.push_back(algorithm_from(algorithm, *call_.collective));
    }
  }

  void run() {
    if (!request_.json) {
      print_heading();
    }
    for (std::uint64_t bytes = request_.min_bytes;; bytes *= request_.factor) {
      const Problem problem = problem_of(bytes);
      for (const SimulatedRow& row : rows_for(problem)) {
        request_.json ? print_json(row) : print_row(row);
      }
      // Divided, for the product may wrap. The file holds one picture, of the largest size.
      const bool last = bytes > request_.max_bytes / request_.factor;
      if (last && !(request_.svg.empty() && request_.trace.empty())) {
        draw(problem);
      }
      if (last) {
        return;
      }
    }
  }

 private:
  Problem problem_of(std::uint64_t bytes) const {
    const int ranks = grouping_->ranks();
    return {.collective = *call_.collective,
            .grouping = grouping_,
            .count = count_for(call_, dtype_, ranks, bytes),
            .input = dtype_,
            .output = dtype_};
  }

  const Algorithm& chosen(const Problem& problem) const {
    return collectives::choose(problem, rules_);
  }

  std::vector<SimulatedRow> rows_for(const Problem& problem) const {
    std::vector<SimulatedRow> rows;
    const std::size_t bytes = problem.payload_bytes();
    const auto add = [&](const Algorithm* algorithm, const Simulation& made, bool is_chosen) {
      rows.push_back({algorithm->name, bytes, made.seconds, made, is_chosen});
    };
    if (request_.best) {
      for (const auto& [algorithm, made] : collectives::by_speed(problem, machine_)) {
        add(algorithm, made, algorithm == &chosen(problem));
      }
      add_flat_ring(problem, rows);
    } else if (asked_.empty()) {
      const Algorithm& algorithm = chosen(problem);
      add(&algorithm, simulate(problem, algorithm, machine_), false);
    }
    for (const Algorithm* algorithm : asked_) {
      algorithm == nullptr ? add_flat_ring(problem, rows)
                           : add(algorithm, simulate(problem, *algorithm, machine_), false);
    }
    return rows;
  }

  void add_flat_ring(const Problem& problem, std::vector<SimulatedRow>& rows) const {
    if (const auto seconds = collectives::flat_ring_seconds(problem, machine_)) {
      rows.push_back({flat_ring, problem.payload_bytes(), *seconds, std::nullopt});
    }
  }

  std::string where() const {
    const bool in_table = request_.topology.starts_with(machine_.name);
    const std::string what =
        in_table ? std::string(machine_.summary)
                 : fmt::format("rails: {}, rates: {}", machine_.rails, machine_.name);
    return fmt::format("{} ranks on {} host{} of {} ({})", grouping_->ranks(), request_.hosts,
                       request_.hosts == 1 ? "" : "s", request_.topology, what);
  }

  double algbw_GBps(const SimulatedRow& row) const {
    return row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds / 1e9 : 0;
  }
  double busbw_GBps(const SimulatedRow& row) const {
    return algbw_GBps(row) * bus_factor(call_, grouping_->ranks());
  }

  static double share(double busy, const SimulatedRow& row) {
    return row.seconds > 0 ? 100 * busy / row.seconds : 0;
  }

  void print_heading() const {
    fmt::print("# {}: {}, {}, simulated\n", name(call_), where(), name(dtype_));
    fmt::print("#{:>11} {:>12} {:>8} {:>8} {:>6} {:>6} {:>6}  {:<8} {}\n", "size", "time", "algbw",
               "busbw", "rail", "link", "core", "limit", "algorithm");
    fmt::print("#{:>11} {:>12} {:>8} {:>8} {:>6} {:>6} {:>6}\n", "(B)", "(us)", "(GB/s)", "(GB/s)",
               "(%)", "(%)", "(%)");
  }

  void print_row(const SimulatedRow& row) const {
    fmt::print("{:>12} {:>12.1f} {:>8.2f} {:>8.2f} ", row.bytes, row.seconds * 1e6, algbw_GBps(row),
               busbw_GBps(row));
    if (const auto& made = row.simulation) {
      fmt::print("{:>6.0f} {:>6.0f} {:>6.0f}  {:<8} ", share(made->rail, row),
                 share(made->link, row), share(made->core, row), made->limit());
    } else {
      fmt::print("{:>6} {:>6} {:>6}  {:<8} ", "", "", "", "");
    }
    fmt::print("{}{}\n", row.algorithm, row.chosen ? " *" : "");
  }

  void print_json(const SimulatedRow& row) const {
    nlohmann::ordered_json json;
    json["collective"] = name(call_);
    json["bytes"] = row.bytes;
    json["dtype"] = name(dtype_);
    json["topology"] = request_.topology;
    json["hosts"] = request_.hosts;
    json["ranks"] = grouping_->ranks();
    json["algorithm"] = row.algorithm;
    json["time_us"] = row.seconds * 1e6;
    json["algbw_GBps"] = algbw_GBps(row);
    json["busbw_GBps"] = busbw_GBps(row);
    if (const auto& made = row.simulation) {
      json["busy_us"] = {
          {"rail", made->rail * 1e6}, {"link", made->link * 1e6}, {"core", made->core * 1e6}};
      json["limit"] = made->limit();
    }
    fmt::print("{}\n", json.dump());
  }

  void draw(const Problem& problem) const {
    const bool asked = !asked_.empty() && asked_.front() != nullptr;
    const Algorithm& algorithm = asked ? *asked_.front() : chosen(problem);
    Timeline timeline;
    timeline.host_of = host_of_;
    const Simulation made =
        simulate(collectives::for_each_rank(problem), algorithm, machine_,
                 [&timeline](const collectives::Span& span) { timeline.spans.push_back(span); });
    timeline.seconds = made.seconds;
    timeline.title =
        fmt::format("{} {}, {} of {}: {:.1f} µs", name(call_), algorithm.name,
                    readable_bytes(problem.payload_bytes()), name(dtype_), made.seconds * 1e6);
    timeline.subtitle = where() + fmt::format("; limited by {}", made.limit());
    if (!request_.svg.empty()) {
      write_whole_file(request_.svg, to_svg(timeline));
    }
    if (!request_.trace.empty()) {
      write_whole_file(request_.trace, to_trace(timeline));
    }
  }

  const SimulateArguments& request_;
  const Machine machine_;
  const BenchCall call_;
  const DType dtype_;
  const collectives::Rules rules_;
  std::vector<int> host_of_;
  std::shared_ptr<const collectives::Grouping> grouping_;
  std::vector<const Algorithm*> asked_;  ///< Null: the flat ring.
};

int run_simulate(const SimulateArguments& request) {
  if (request.factor < 2 || request.max_bytes < request.min_bytes || request.min_bytes == 0) {
    throw UsageError("sizes go from -b, at least 1, up to -e by a factor -f of at least 2");
  }
  Simulate(request).run();
  return 0;
}

Action prepare_simulate(CLI::App& app) {
  auto r = std::make_shared<SimulateArguments>();
  const auto size = SizeValue(false);  // 64M is 64 * 2^20
  std::string machines;
  for (const Machine& machine : collectives::all_machines()) {
    machines += fmt::format("{} ", machine.name);
  }
  app.add_option("COLLECTIVE", r->collective, "As in sprat bench, v-forms excepted")->required();
  app.add_option("--topology", r->topology,
                 machines + "or FILE.xml; then changes: p4d,rails=2,wire_us=20")
      ->capture_default_str();
  app.add_option("--hosts", r->hosts, "How many of these machines")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--ranks-per-host", r->ranks_per_host, "Default: one for each GPU, else core")
      ->check(CLI::Range(1, 4096));
  app.add_option("-b,--min-bytes", r->min_bytes, "Smallest size [1M]")->transform(size);
  app.add_option("-e,--max-bytes", r->max_bytes, "Largest size [1G]")->transform(size);
  app.add_option("-f,--factor", r->factor, "From one size to the next")->capture_default_str();
  app.add_option("-d,--dtype", r->dtype, "Element type")->capture_default_str();
  const auto algorithm = app.add_option("--algorithm", r->algorithms,
                                        "These, not the rules' (names: sprat info), and flat_ring")
                             ->delimiter(',')
                             ->allow_extra_args(false);
  app.add_flag("--best", r->best, "Every algorithm that fits, fastest first")->excludes(algorithm);
  app.add_flag("--json", r->json, "One JSON object a row instead of the table");
  app.add_option("--svg", r->svg, "Also draw the last size's timeline to this file");
  app.add_option("--trace", r->trace, "The same as what ui.perfetto.dev opens");
  return [r] { return run_simulate(*r); };
}

}  // namespace

extern const Command simulate_command;
const Command simulate_command = {
    "simulate",
    "What a collective would take on machines that are not here",
    R"(Runs the plans of every rank, the same that `sprat bench` runs, in virtual time on a model of the
machine: ranks that compute and are read over links, hosts with rails, latencies of wires and signals
(collectives/simulate/simulator.hpp tells it all). Peak rates go in: machines that stand somewhere are slower.

time, algbw, busbw: as in `sprat bench`. rail, link, core: how much of the time the busiest of each kind
was at work; limit: which of them, or latency if all were idle for half of it. --best marks with * what
the rules choose. flat_ring is no plan of ours but a closed form: a ring over all ranks, as NCCL has it.

A machine is a name, or an hwloc file (lstopo rack.xml), with changes to any of ranks, rails,
rail_GBps, wire_us, message_us, pull_GBps, link_GBps, copy_GBps, add_GBps, signal_us.

Examples:
  sprat simulate all_reduce --topology p4d --hosts 64           1 MiB to 1 GiB over 512 GPUs
  sprat simulate all_gather --topology p5 --hosts 16 --best     which algorithm wins where?
  sprat simulate all_reduce --topology p4d,rails=1 --hosts 2    what if three NICs were down?
  sprat simulate all_reduce --hosts 512 --algorithm hierarchical,flat_ring
  sprat simulate all_reduce --hosts 2 -b 64M -e 64M --svg timeline.svg
)",
    prepare_simulate,
};

}  // namespace sprat::cli
