#include "plugins/nccl_net/tuner.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "comm/base/whole_file.hpp"
#include "plugins/nccl_net/guard.hpp"
#include "plugins/nccl_net/net.hpp"
#include "plugins/nccl_net/tuning.hpp"

namespace sprat::nccl_net::tuner {
namespace {

/// One communicator's.
struct Context {
  tuning::Job job;
  bool has_model = false;
  std::vector<tuning::Rule> rules;
};

void read_wish(Context& context) {
  const char* const wish = environment("SPRAT_NCCL_TUNING");
  if (wish == nullptr || *wish == '\0') {
    return;
  }
  if (std::string_view(wish) == "model") {
    context.has_model = true;
    return;
  }
  std::string rules;
  try {
    rules = read_setting_file("SPRAT_NCCL_TUNING", wish);
  } catch (const Error& error) {
    throw Error(error.code(),
                text(error.what(), " (a file of rules, or `model`); NCCL's own tuning stays"));
  }
  context.rules = tuning::parse_rules(rules, wish);
}

/// Bytes an algorithm's row of NCCL's table has: newer versions may have more than we know.
tuning::Costs read_table(float** table, int algorithms, int protocols) {
  tuning::Costs costs;
  for (auto& row : costs) {
    row.fill(tuning::not_available);
  }
  // NCCL passes an array of arrays as float**.
  const auto* flat = reinterpret_cast<const float*>(table);
  for (int a = 0; a < std::min(algorithms, tuning::algorithms); ++a) {
    for (int p = 0; p < std::min(protocols, tuning::protocols); ++p) {
      costs[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)] = flat[a * protocols + p];
    }
  }
  return costs;
}

void write_table(const tuning::Costs& costs, float** table, int algorithms, int protocols) {
  auto* flat = reinterpret_cast<float*>(table);
  for (int a = 0; a < std::min(algorithms, tuning::algorithms); ++a) {
    for (int p = 0; p < std::min(protocols, tuning::protocols); ++p) {
      flat[a * protocols + p] = costs[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)];
    }
  }
}

bool is_known(int collective) {
  return collective >= 0 && collective <= static_cast<int>(tuning::Collective::all_reduce);
}

tuning::Choice choose_costs(const Context& context, const tuning::Call& call,
                            const tuning::Costs& costs) {
  return context.has_model ? tuning::apply_model(context.job, call, costs)
                           : tuning::apply_rules(context.rules, context.job, call, costs);
}

}  // namespace

Result init(std::size_t ranks, std::size_t nodes, Logger log, void** context) {
  set_logger(log);
  return guard("tuner init", [&] {
    auto made = std::make_unique<Context>();
    made->job = {.ranks = ranks, .nodes = nodes};
    net::Properties device;
    if (net::properties(0, &device) == Result::success) {
      made->job.wire_mbit_s = device.speed;
    }
    // Whatever is wrong with the wish: it is said, and NCCL chooses by itself.
    guard("tuner", [&] {
      read_wish(*made);
      return Result::success;
    });
    *context = made.release();
    return Result::success;
  });
}

Result costs(void* context, int collective, std::size_t bytes, float** table, int algorithms,
             int protocols, int* channels) {
  return guard("getCollInfo", [&] {
    if (context == nullptr || !is_known(collective)) {
      return Result::success;
    }
    const auto choice =
        choose_costs(*static_cast<const Context*>(context),
                     {.collective = static_cast<tuning::Collective>(collective), .bytes = bytes},
                     read_table(table, algorithms, protocols));
    write_table(choice.costs, table, algorithms, protocols);
    if (choice.channels > 0) {
      *channels = choice.channels;
    }
    return Result::success;
  });
}

Result choose(void* context, int collective, std::size_t bytes, bool coll_net, bool nvls,
              int* algorithm, int* protocol, int* channels) {
  return guard("getCollInfo", [&] {
    if (context == nullptr || !is_known(collective)) {
      return Result::success;
    }
    tuning::Costs costs;
    for (std::size_t a = 0; a < costs.size(); ++a) {
      const auto one = static_cast<tuning::Algorithm>(a);
      const bool by_net =
          one == tuning::Algorithm::collnet_direct || one == tuning::Algorithm::collnet_chain;
      const bool by_switch = one == tuning::Algorithm::nvls || one == tuning::Algorithm::nvls_tree;
      // Version 2 knows no PAT, and says of two kinds whether they can be had.
      const bool can =
          one != tuning::Algorithm::pat && (!by_net || coll_net) && (!by_switch || nvls);
      costs[a].fill(can ? std::numeric_limits<float>::max() : tuning::not_available);
    }
    const auto choice = choose_costs(
        *static_cast<const Context*>(context),
        {.collective = static_cast<tuning::Collective>(collective), .bytes = bytes}, costs);
    float least = std::numeric_limits<float>::max();
    for (int a = 0; a < tuning::algorithms; ++a) {
      for (int p = 0; p < tuning::protocols; ++p) {
        const float cost = choice.costs[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)];
        if (cost != tuning::not_available && cost < least) {
          least = cost;
          *algorithm = a;
          *protocol = p;
        }
      }
    }
    if (choice.channels > 0) {
      *channels = choice.channels;
    }
    return Result::success;
  });
}

Result finalize(void* context) {
  const std::unique_ptr<Context> owner(static_cast<Context*>(context));
  return Result::success;
}

}  // namespace sprat::nccl_net::tuner
