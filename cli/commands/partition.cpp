// `sprat partition`: where a model is cut for a pipeline, without any rank.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/size_value.hpp"
#include "cli/tree.hpp"
#include "cli/whole_number.hpp"
#include "comm/base/whole_file.hpp"
#include "mp/partition/method.hpp"
#include "mp/partition/partition_file.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using mp::ModelPiece;

struct PartitionArguments {
  std::string model, method, optimize = "memory", seats = "capped", write, read;
  int partitions = 1, microbatches = 1;
  std::optional<int> default_partition;  ///< Given: by hand.
  std::optional<double> memory_weight;   ///< None: as `optimize` has it.
  std::uint64_t memory_limit = 0;        ///< 0: none.
  std::vector<std::string> pins;
  bool any_order = false, json = false;
};

/// "name=2"; the last = counts, since names may hold some.
std::map<std::string, int> pins_from(const std::vector<std::string>& words) {
  std::map<std::string, int> pins;
  for (const std::string& word : words) {
    const std::size_t equals = word.rfind('=');
    const std::string number = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (equals == 0 || !WholeNumber(0)(number).empty()) {
      throw UsageError(fmt::format("--pin {} is no NAME=PARTITION", word));
    }
    pins[word.substr(0, equals)] = std::stoi(number);
  }
  return pins;
}

/// One line of the table.
struct PartitionRow {
  int pieces = 0;
  // Sums of the pieces' own costs, in the units of the model's file.
  double time = 0, parameter_bytes = 0, activation_bytes = 0;
  std::string first, last;
  std::set<std::string> held;  ///< Shared parameters, a copy of each.

  void add(const ModelPiece& piece) {
    first = pieces++ == 0 ? piece.name : first;
    last = piece.name;
    time += piece.time;
    parameter_bytes += piece.parameter_bytes;
    activation_bytes += piece.activation_bytes;
    for (const mp::SharedParameter& shared : piece.shared) {
      parameter_bytes += held.insert(shared.name).second ? shared.bytes : 0;
    }
  }
};

/// How far the largest is above the even share.
double balance(const std::vector<PartitionRow>& rows, double PartitionRow::*what) {
  double all = 0, most = 0;
  for (const PartitionRow& row : rows) {
    all += row.*what;
    most = std::max(most, row.*what);
  }
  return all > 0 ? most / (all / static_cast<double>(rows.size())) : 1;
}

class PlanPartition {
 public:
  explicit PlanPartition(const PartitionArguments& request)
      : request_(request),
        model_(mp::parse_model(request.model, read_whole_file(request.model))),
        pieces_(mp::pieces_of(model_)) {}

  void run() {
    cut();
    // Partitions that got nothing have a row too: that is what the reader looks for.
    rows_.resize(static_cast<std::size_t>(request_.partitions));
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      rows_[static_cast<std::size_t>(partition_of_[index])].add(*pieces_[index]);
    }
    request_.json ? print_json() : print_table();
    if (!request_.write.empty()) {
      write();
    }
  }

 private:
  void cut() {
    if (!request_.read.empty()) {
      // Held against the model first: a table of another model's partition would look plausible.
      how_ = "as " + request_.read + " says";
      partition_of_ = mp::partition_from(
          request_.read, mp::parse_partition_file(request_.read, read_whole_file(request_.read)),
          pieces_, request_.partitions);
    } else if (request_.default_partition) {
      how_ = "by hand";
      partition_of_ = mp::manual_partition(pieces_, pins_from(request_.pins),
                                           *request_.default_partition, request_.partitions);
    } else {
      const mp::PartitionMethod& method = request_.method.empty()
                                              ? mp::usual_method(model_)
                                              : mp::partition_method_named(request_.method);
      // Ignored limits are worse than refused ones: the table would seem to obey.
      if (request_.memory_limit > 0 && method.name != "chain") {
        throw UsageError(fmt::format("--memory-limit is for method chain, not {}", method.name));
      }
      how_ = fmt::format("by method {}", method.name);
      partition_of_ = method.cut(model_, method_request());
    }
  }

  mp::MethodRequest method_request() const {
    mp::MethodRequest request;
    request.partitions = request_.partitions;
    // SMP's defaults of memory_weight.
    const bool speed = request_.optimize == "speed";
    request.goal = speed ? mp::PartitionGoal::speed : mp::PartitionGoal::memory;
    request.memory_weight = request_.memory_weight.value_or(speed ? 0.2 : 0.8);
    request.seats = request_.seats == "plain" ? mp::SeatRule::plain : mp::SeatRule::capped;
    request.chain.microbatches = request_.microbatches;
    if (request_.memory_limit > 0) {
      request.chain.capacity_bytes = {static_cast<double>(request_.memory_limit)};
    }
    request.contiguity = request_.any_order ? mp::Contiguity::free : mp::Contiguity::ordered;
    return request;
  }

  static std::string bytes(double count) {
    // Above all memory there is, units help nobody.
    constexpr double most = 1e18;
    return count < most ? readable_bytes(static_cast<std::size_t>(count))
                        : fmt::format("{:.3g} B", count);
  }

  void print_table() const {
    double all = 0;
    for (const PartitionRow& row : rows_) {
      all += row.time;
    }
    fmt::print("# {}: {} pieces over {} partitions, {}\n", request_.model, pieces_.size(),
               request_.partitions, how_);
    fmt::print("#{:>9} {:>7} {:>7} {:>11} {:>12}  {}\n", "partition", "pieces", "time",
               "parameters", "activations", "first to last");
    for (std::size_t index = 0; index < rows_.size(); ++index) {
      const PartitionRow& row = rows_[index];
      const double share = all > 0 ? 100 * row.time / all : 0;
      const std::string which =
          row.pieces < 2 ? row.first : fmt::format("{} to {}", row.first, row.last);
      fmt::print("{:>10} {:>7} {:>6.1f}% {:>11} {:>12}  {}\n", index, row.pieces, share,
                 bytes(row.parameter_bytes), bytes(row.activation_bytes),
                 row.pieces > 0 ? which : "nothing");
    }
    fmt::print("largest over even share: time {:.3f}, parameters {:.3f}, activations {:.3f}\n",
               balance(rows_, &PartitionRow::time), balance(rows_, &PartitionRow::parameter_bytes),
               balance(rows_, &PartitionRow::activation_bytes));
    // The parameters' column counts each copy, so its sum may exceed the model's.
    for (const auto& [name, copies] : copies_of_shared()) {
      if (copies > 1) {
        fmt::print("{} is on {} partitions: each holds a copy, and gradients are summed\n", name,
                   copies);
      }
    }
  }

  std::map<std::string, int> copies_of_shared() const {
    std::map<std::string, int> copies;
    for (const PartitionRow& row : rows_) {
      for (const std::string& name : row.held) {
        ++copies[name];
      }
    }
    return copies;
  }

  void print_json() const {
    nlohmann::ordered_json json;
    // The same fingerprint as in partition files, to tell which of them is this model's.
    json["model"] = mp::model_fingerprint(pieces_);
    json["how"] = how_;
    json["partitions"] = nlohmann::ordered_json::array();
    for (const PartitionRow& row : rows_) {
      json["partitions"].push_back({{"pieces", row.pieces},
                                    {"time", row.time},
                                    {"parameter_bytes", row.parameter_bytes},
                                    {"activation_bytes", row.activation_bytes}});
    }
    json["balance"] = {{"time", balance(rows_, &PartitionRow::time)},
                       {"parameter_bytes", balance(rows_, &PartitionRow::parameter_bytes)},
                       {"activation_bytes", balance(rows_, &PartitionRow::activation_bytes)}};
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      json["partition_of"][pieces_[index]->name] = partition_of_[index];
    }
    fmt::print("{}\n", json.dump());
  }

  void write() const {
    std::ofstream file(request_.write);
    // Flushed before it is asked: a full disk shows only then.
    file << mp::write_partition_file(pieces_, partition_of_, request_.partitions) << std::flush;
    if (!file) {
      throw Error(ErrorCode::unavailable, "cannot write \"" + request_.write + "\"");
    }
  }

  const PartitionArguments& request_;
  const mp::PlannedModel model_;
  const std::vector<const ModelPiece*> pieces_;
  std::vector<int> partition_of_;  // by piece
  std::vector<PartitionRow> rows_;
  std::string how_;
};

int run_partition(const PartitionArguments& request) {
  const bool by_hand = request.default_partition.has_value();
  if (!request.pins.empty() && !by_hand) {
    throw UsageError("--pin wants --default-partition, where all that is not pinned goes");
  }
  if (int{by_hand} + int{!request.method.empty()} + int{!request.read.empty()} > 1) {
    throw UsageError("--method, --default-partition and --read each say where to cut; give one");
  }
  PlanPartition(request).run();
  return 0;
}

Action prepare_partition(CLI::App& app) {
  auto r = std::make_shared<PartitionArguments>();
  std::string methods;
  for (const mp::PartitionMethod& method : mp::all_partition_methods()) {
    methods += fmt::format("{}{} ({})", methods.empty() ? "" : ", ", method.name, method.summary);
  }
  app.add_option("MODEL", r->model, "A model as docs/partition.md tells, or GPT-2's config.json")
      ->required();
  app.add_option("-p,--partitions", r->partitions, "How many; one for each rank of the pipeline")
      ->required()
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--method", r->method, methods + "; default: by the model's form");
  app.add_option("--optimize", r->optimize, "What matters more")
      ->check(CLI::IsMember({"memory", "speed"}))
      ->capture_default_str();
  app.add_option("--memory-weight", r->memory_weight,
                 "tree: memory's share of a cost [0.8; with --optimize speed 0.2]")
      ->check(RealNumber(0.0, 1.0));
  app.add_option("--seats", r->seats, "tree: how partitions are given; plain is the textbook's")
      ->check(CLI::IsMember({"capped", "plain"}))
      ->capture_default_str();
  app.add_option("--microbatches", r->microbatches, "chain: of a step, as 1F1B keeps them")
      ->check(WholeNumber(1))
      ->capture_default_str();
  app.add_option("--memory-limit", r->memory_limit, "chain: what a rank may hold, such as 16G")
      ->transform(SizeValue(false));
  app.add_flag("--any-order", r->any_order, "graph: data may go back to earlier partitions");
  app.add_option("--default-partition", r->default_partition,
                 "By hand: where everything goes that no --pin names")
      ->check(WholeNumber(0));
  app.add_option("--pin", r->pins, "By hand: h.3=2 puts h.3 and all inside of it on partition 2")
      ->allow_extra_args(false);
  app.add_option("--write", r->write, "Keep the partition in this file");
  app.add_option("--read", r->read, "Show the partition that this file keeps");
  app.add_flag("--json", r->json, "One JSON object instead of the table");
  return [r] { return run_partition(*r); };
}

}  // namespace

extern const Command partition_command;
const Command partition_command = {
    "partition",
    "Where to cut a model for a pipeline",
    R"(Cuts a model into partitions, one for each rank of a pipeline, from what its pieces cost. No rank runs.

chain: layers one after another. The slowest partition is as fast as can be, and each fits --memory-limit:
       partition k of p holds four times its parameters (gradients, Adam) and activations of the smaller of
       p - k and --microbatches. Proven the best.
tree:  modules in modules, as SMP places them. Modules that share a parameter stay together; what has
       no parameters runs where its parent does.
graph: operations with edges. As few bytes cross as was found, times and memory balanced within 5 %.

The table: each partition's share of the time, its parameters and what one micro-batch keeps, and how far the
largest is above the even share: 1.084 means that a step takes 8.4 % longer than if all were equal.

Examples:
  sprat partition config.json -p 4                              GPT-2 as Hugging Face describes it
  sprat partition config.json -p 4 --microbatches 8 --memory-limit 16G
  sprat partition model.json -p 4 --method tree --memory-weight 0.5 --write four.json
  sprat partition model.json -p 4 --read four.json              does it still fit the model?
  sprat partition config.json -p 2 --default-partition 0 --pin h.11=1 --pin head=1
)",
    prepare_partition,
};

}  // namespace sprat::cli
