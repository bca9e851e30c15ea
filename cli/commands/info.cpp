// `sprat info`: which choices Sprat makes on this machine, and why.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.hpp"
#include "cli/info/plan.hpp"
#include "cli/io/convert/parquet.hpp"
#include "cli/whole_number.hpp"
#include "collectives/kernels/reduce.hpp"
#include "collectives/plan/tuning.hpp"
#include "comm/host/interfaces.hpp"
#include "comm/transports/libfabric/provider.hpp"
#include "comm/transports/transport_kind.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"
#include "sprat/mp.hpp"
#include "sprat/sprat.h"

namespace sprat::cli {
namespace {

using Json = nlohmann::ordered_json;

/// What carries messages between hosts here, and everything that libfabric offers.
Json providers_json(const Config& config) {
  using comm::TransportKind;
  const TransportKind& wire = comm::choose_transport(TransportKind::Scope::network, config);
  return {{"chosen", wire.describe(config)}, {"offered", comm::libfabric::describe_offers()}};
}

Json interfaces_json(const Config& config) {
  Json list = Json::array();
  for (const auto& choice : comm::choose_interfaces(comm::read_interfaces(), config.interface)) {
    list.push_back({{"name", choice.interface.name},
                    {"addresses", choice.interface.addresses},
                    {"chosen", choice.chosen},
                    {"reason", choice.reason}});
  }
  return list;
}

Json algorithms_json() {
  Json list = Json::array();
  for (const collectives::Algorithm* algorithm : collectives::all_algorithms()) {
    list.push_back({{"collective", name(algorithm->collective)},
                    {"name", algorithm->name},
                    {"summary", algorithm->summary}});
  }
  return list;
}

Json rules_json(const Config& config) {
  Json list = Json::array();
  for (const collectives::Rule& rule : collectives::rules_of(config)) {
    list.push_back({{"rule", describe(rule)}, {"origin", rule.origin}});
  }
  return list;
}

Json gemm_json() {
  Json list = Json::array();
  for (const GemmRate& rate : probe_gemm_backends()) {
    list.push_back({{"backend", rate.backend}, {"gflops", rate.gflops}});
  }
  return list;
}

Json configuration_json(const Config& config) {
  Json list = Json::array();
  for (const ConfigField& field : describe(config)) {
    list.push_back({{"name", field.name},
                    {"variable", field.variable},
                    {"value", field.value},
                    {"unit", field.unit},
                    {"origin", field.origin},
                    {"default", field.default_value},
                    {"help", field.help}});
  }
  return list;
}

/// A part that fails says why in its place and does not hide the others.
Json attempt(const std::function<Json()>& part) {
  try {
    return part();
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

Json collect_info() {
  // A variable that cannot be read ends the command here, as it would end any job.
  const Config config = Config::from_environment();
  Json all;
  all["version"] = sprat_version();
  all["providers"] = attempt([&] { return providers_json(config); });
  all["interfaces"] = attempt([&] { return interfaces_json(config); });
  all["reduce_targets"] = collectives::reduce_targets();
  all["algorithms"] = algorithms_json();
  all["rules"] = attempt([&] { return rules_json(config); });
  all["gemm"] = attempt(gemm_json);
  all["gemm_warnings"] = gemm_warnings();
  all["parquet"] = parquet_reader();
  all["configuration"] = configuration_json(config);
  return all;
}

std::string word(const Json& object, const char* key) { return object[key].get<std::string>(); }

/// A heading, then each entry of `part` as a line, or the error in its place.
void print(const char* heading, const Json& part,
           const std::function<std::string(const Json&)>& line) {
  fmt::print("\n{}\n", heading);
  if (part.contains("error")) {
    fmt::print("  unavailable: {}\n", word(part, "error"));
    return;
  }
  for (const Json& entry : part) {
    fmt::print("  {}\n", line(entry));
  }
}

std::string joined_words(const Json& words) {
  std::string text;
  for (const Json& one : words) {
    text += (text.empty() ? "" : ", ") + one.get<std::string>();
  }
  return text;
}

std::string configuration_line(const Json& field) {
  std::string value = word(field, "value");
  if (value.empty()) {
    value = "(empty)";
  } else if (value.front() >= '0' && value.front() <= '9') {
    // Only numbers get their unit: behind a word it would read as part of the value.
    value += " " + word(field, "unit");
  }
  return fmt::format("{:<14} {:<24} {:<22} {}", word(field, "name"), value, word(field, "origin"),
                     word(field, "variable"));
}

void print_rules(const Json& rules) {
  print(
      "Rules, the first that applies and fits chooses (SPRAT_ALGORITHM and SPRAT_TUNING put some "
      "before)",
      rules, [](const Json& entry) {
        return fmt::format("{:<64} {}", word(entry, "rule"), word(entry, "origin"));
      });
}

/// "tcp;ofi_rxm on eth0 (192.0.2.1)" and its like, without the addresses and the repetitions.
Json shortened(const Json& offers) {
  Json list = Json::array();
  for (const Json& offer : offers) {
    const std::string text = offer.get<std::string>();
    const Json brief = text.substr(0, std::min(text.find(" ("), text.find(',')));
    if (std::ranges::find(list, brief) == list.end()) {
      list.push_back(brief);
    }
  }
  return list;
}

void print(const Json& all) {
  fmt::print("Sprat {}\n", word(all, "version"));
  const auto plain = [](const Json& entry) { return entry.get<std::string>(); };
  const Json& providers = all["providers"];
  if (providers.contains("error")) {
    print("Between hosts", providers, plain);
  } else {
    print("Between hosts, messages go through", Json::array({providers["chosen"]}), plain);
    print("Offered by libfabric (SPRAT_PROVIDER chooses, or sockets; all of it: sprat info --json)",
          shortened(providers["offered"]), plain);
  }
  print("Network interfaces (SPRAT_INTERFACE chooses)", all["interfaces"], [](const Json& entry) {
    return fmt::format("{} {:<15} {:<32} {}", entry["chosen"].get<bool>() ? '*' : ' ',
                       word(entry, "name"), joined_words(entry["addresses"]),
                       word(entry, "reason"));
  });
  print("Instruction sets of the reduction kernels, the one in use first", all["reduce_targets"],
        plain);
  print("Algorithms", all["algorithms"], [](const Json& entry) {
    return fmt::format("{:<15} {:<15} {}", word(entry, "collective"), word(entry, "name"),
                       word(entry, "summary"));
  });
  print_rules(all["rules"]);
  print("Matrix products, the backend in use first", all["gemm"], [](const Json& entry) {
    return fmt::format("{:<24} {:.0f} GFLOP/s on one thread", word(entry, "backend"),
                       entry["gflops"].get<double>());
  });
  for (const Json& warning : all["gemm_warnings"]) {
    fmt::print("  warning: {}\n", warning.get<std::string>());
  }
  print("Parquet is converted by (sprat io convert)", Json::array({all["parquet"]}), plain);
  print("Configuration: name, value, who set it, variable", all["configuration"],
        configuration_line);
}

struct InfoArguments {
  bool as_json = false, rules_only = false;
  std::vector<std::string> plan;  ///< Collective, algorithm, ranks.
  PlanRequest details;
};

int run_rules(bool as_json) {
  const Json rules = rules_json(Config::from_environment());
  if (as_json) {
    fmt::print("{}\n", rules.dump(2));
  } else {
    print_rules(rules);
  }
  return 0;
}

int run_plan(const InfoArguments& request) {
  PlanRequest plan = request.details;
  plan.collective = request.plan[0];
  plan.algorithm = request.plan[1];
  // The option takes two names and a number, so CLI11 has read all three as text.
  if (!CLI::detail::lexical_cast(request.plan[2], plan.ranks)) {
    throw UsageError("\"" + request.plan[2] + "\" is no number of ranks");
  }
  fmt::print("{}", request.as_json ? plan_json(plan).dump(2) + "\n" : plan_text(plan));
  return 0;
}

int run_all(bool as_json) {
  const Json all = collect_info();
  if (as_json) {
    fmt::print("{}\n", all.dump(2));
  } else {
    print(all);
  }
  return 0;
}

Action prepare_info(CLI::App& app) {
  auto r = std::make_shared<InfoArguments>();
  app.add_flag("--json", r->as_json, "One JSON object");
  app.add_flag("--rules", r->rules_only, "Only the rules that choose algorithms, in order");
  auto* plan =
      app.add_option("--plan", r->plan, "Instead, what a rank does: COLLECTIVE ALGORITHM RANKS")
          ->expected(3)
          ->excludes("--rules");
  app.add_option("--ranks-per-host", r->details.ranks_per_host, "Of --plan (default: all)")
      ->check(WholeNumber(1))
      ->needs(plan);
  app.add_option("--count", r->details.count, "Of --plan: elements, f32")
      ->capture_default_str()
      ->needs(plan);
  app.add_option("--rank", r->details.rank, "Of --plan: whose")->capture_default_str()->needs(plan);
  return [r] {
    if (!r->plan.empty()) {
      return run_plan(*r);
    }
    return r->rules_only ? run_rules(r->as_json) : run_all(r->as_json);
  };
}

}  // namespace

extern const Command info_command;
const Command info_command = {
    "info",
    "Show which choices Sprat makes on this machine, and why",
    R"(Version, providers, network interfaces with the reason each is used or not, algorithms and the rules
that choose among them, the matrix product's backend, and every setting with who set it.

Examples:
  sprat info
  SPRAT_INTERFACE=^docker0 sprat info         what changes if an interface is left out
  sprat info --json | python3 -m json.tool
  SPRAT_ALGORITHM="all_reduce one_shot" sprat info --rules    which rules are in force?
  sprat info --plan all_gather hierarchical 8 --ranks-per-host 4 --rank 5
)",
    prepare_info,
};

}  // namespace sprat::cli
