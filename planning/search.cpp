// Leaves are bounded before they are computed, and sorted by their bounds.
#include "planning/search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <tuple>

#include "comm/base/check.hpp"

namespace sprat::planning {
namespace {

/// Powers of two that divide `whole`, ascending, and `whole` itself.
std::vector<int> powers_dividing(int whole, std::int64_t most) {
  std::vector<int> powers;
  for (std::int64_t power = 1; power <= whole && power <= most; power *= 2) {
    if (whole % power == 0) {
      powers.push_back(static_cast<int>(power));
    }
  }
  if (whole <= most && powers.back() != whole) {
    powers.push_back(whole);
  }
  return powers;
}

template <class Value>
bool wanted(const std::optional<Value>& pin, Value value) {
  return !pin || *pin == value;
}

/// Rows of fsdp's table with their degrees.
std::vector<std::pair<const char*, int>> rows(const PlanRequest& request, const Arrangement& base) {
  const int data = data_ranks(request, base);
  std::vector<std::pair<const char*, int>> found = {{"ddp", 1}};
  if (data == 1) {
    return found;
  }
  // By fsdp's table these three shard over all data ranks, the hybrid ones over some.
  for (const char* row : {"zero1", "zero2", "zero3"}) {
    found.emplace_back(row, data);
  }
  for (const int shards : powers_dividing(data, data - 1)) {
    if (shards > 1) {
      found.emplace_back("hsdp", shards);
      found.emplace_back("hfsdp", shards);
    }
  }
  return found;
}

/// Adds what is left to choose once degrees are. A batch that the ranks do not divide ends here.
void add_passes(const PlanRequest& request, const Pins& pins, Arrangement base,
                std::vector<Arrangement>& all) {
  const std::int64_t shares = data_ranks(request, base) / base.context;
  if (request.batch_sequences % shares != 0) {
    return;
  }
  // Micro-batches of a power of two of sequences, and all at once; others lie between in time and
  // memory.
  const auto own = static_cast<int>(request.batch_sequences / shares);
  constexpr int most_microbatches = 1024;
  std::vector<int> sizes = powers_dividing(own, own);
  // Whoever names a number of micro-batches gets it, whatever is in each.
  if (pins.microbatches && *pins.microbatches >= 1 && own % *pins.microbatches == 0) {
    sizes = {own / *pins.microbatches};
  }
  for (const int sequences : sizes) {
    base.microbatches = own / sequences;
    if (base.microbatches > most_microbatches || !wanted(pins.microbatches, base.microbatches)) {
      continue;
    }
    for (const auto& [recompute, offload] :
         {std::pair{false, false}, std::pair{true, false}, std::pair{true, true}}) {
      base.recompute = recompute;
      base.offload = offload;
      const bool take = wanted(pins.recompute, recompute) && wanted(pins.offload, offload);
      const bool said = !pins.smp_only || smp_refusal(base).empty();
      if (take && said && refusal(request, base).empty()) {
        all.push_back(base);
      }
    }
  }
}

/// By row and degree, then by context, which divides the degree.
void add_rows(const PlanRequest& request, const Pins& pins, Arrangement base,
              std::vector<Arrangement>& all) {
  constexpr std::int64_t least_chunk =
      256;  // of keys: attention's block, below which C wins nothing
  for (const auto& [row, shards] : rows(request, base)) {
    base.strategy = row;
    base.shards = shards;
    if (!wanted(pins.shards, shards) || !wanted(pins.strategy, base.strategy)) {
      continue;
    }
    // Sequences are cut among ranks that share parameters, so C divides S.
    for (const int context : powers_dividing(shards, shards)) {
      base.context = context;
      const bool long_enough = request.sequence / (2 * context) >= least_chunk || context == 1;
      if (std::has_single_bit(unsigned(context)) && long_enough && wanted(pins.context, context)) {
        add_passes(request, pins, base, all);
      }
    }
  }
}

PlanRequest without_tree(const PlanRequest& request) {
  PlanRequest other = request;
  other.gradient_order = GradientOrder::sequence;
  return other;
}

/// One of the things that were asked, and all others.
struct Wish {
  std::string words;
  PlanRequest request;
  Pins others;
  int Arrangement::*value = nullptr;  ///< Null: not a number.
};

std::vector<Wish> wishes_of(const PlanRequest& request, const Pins& pins) {
  std::vector<Wish> wishes;
  const auto add = [&](std::string words, auto leave_out, int Arrangement::*value = nullptr) {
    Wish wish{.words = std::move(words), .request = request, .others = pins, .value = value};
    leave_out(wish);
    wishes.push_back(std::move(wish));
  };
  struct Degree {
    const char* option;
    std::optional<int> Pins::*pin;
    int Arrangement::*value;
  };
  constexpr Degree degrees[] = {
      {"--tensor", &Pins::tensor, &Arrangement::tensor},
      {"--pipeline", &Pins::pipeline, &Arrangement::pipeline},
      {"--shards", &Pins::shards, &Arrangement::shards},
      {"--context", &Pins::context, &Arrangement::context},
      {"--microbatches", &Pins::microbatches, &Arrangement::microbatches}};
  for (const Degree& one : degrees) {
    if (pins.*one.pin) {
      add(
          fmt::format("{} {}", one.option, *(pins.*one.pin)),
          [&one](Wish& wish) { (wish.others.*one.pin).reset(); }, one.value);
    }
  }
  if (pins.strategy) {
    add("--strategy " + *pins.strategy, [](Wish& wish) { wish.others.strategy.reset(); });
  }
  if (pins.recompute) {
    add(fmt::format("--recompute {}", *pins.recompute),
        [](Wish& wish) { wish.others.recompute.reset(); });
  }
  if (pins.offload) {
    add(fmt::format("--offload {}", *pins.offload),
        [](Wish& wish) { wish.others.offload.reset(); });
  }
  if (pins.smp_only) {
    add("--smp", [](Wish& wish) { wish.others.smp_only = false; });
  }
  if (request.gradient_order == GradientOrder::tree) {
    add("--gradient-order tree", [](Wish& wish) { wish.request = without_tree(wish.request); });
  }
  return wishes;
}

/// "1, 2, 4": what the arrangements have of a degree.
std::string values_of(const std::vector<Arrangement>& all, const Wish& wish) {
  std::set<int> values;
  for (const Arrangement& one : all) {
    if (wish.value != nullptr) {
      values.insert(one.*wish.value);
    }
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

/// What is known of an arrangement without simulating it.
struct Leaf {
  Arrangement arrangement;
  double bound = 0;
  int complexity = 0;
};

/// Times of equal plans are equal bits, since both come from the same sums in the same order.
bool better(const Plan& a, const Plan& b) {
  const auto key = [](const Plan& plan) {
    return std::tuple(plan.time.total(), complexity(plan.arrangement));
  };
  return key(a) < key(b);
}

class Search {
 public:
  Search(const PlanRequest& request, double tolerance)
      : request_(request), tolerance_(tolerance), rehearsals_(request), groups_(request.machine) {}

  SearchResult run(const Pins& pins) {
    std::vector<Leaf> leaves = bounded(arrangements(request_, pins));
    std::ranges::sort(leaves, {},
                      [](const Leaf& leaf) { return std::pair(leaf.bound, leaf.complexity); });
    for (const Leaf& leaf : leaves) {
      if (leaf.bound > best_ * (1 + tolerance_)) {
        break;  // and so are all that follow
      }
      visit(leaf.arrangement);
    }
    finish(leaves);
    return std::move(result_);
  }

 private:
  std::vector<Leaf> bounded(std::vector<Arrangement> all) {
    result_.arrangements = all.size();
    std::vector<Leaf> leaves;
    for (Arrangement& one : all) {
      // The bound costs a millionth of a step's simulation, and most leaves never need more.
      const double bound = least_time(rehearsals_, groups_, one);
      const int steps = complexity(one);
      leaves.push_back({.arrangement = std::move(one), .bound = bound, .complexity = steps});
    }
    return leaves;
  }

  void visit(const Arrangement& arrangement) {
    // Quick sums first: most of what is fast does not fit by far.
    if (least_memory(rehearsals_, arrangement) > request_.machine.usable_bytes()) {
      return;
    }
    ++result_.simulated;
    Plan plan{.arrangement = arrangement,
              .memory = memory_of(rehearsals_, arrangement, request_.machine.usable_bytes()),
              .time = {}};
    if (!fits(request_, plan.memory)) {
      return;
    }
    plan.time = time_of(rehearsals_, groups_, arrangement);
    best_ = std::min(best_, plan.time.total());
    result_.plans.push_back(std::move(plan));
  }

  void finish(const std::vector<Leaf>& leaves) {
    std::erase_if(result_.plans, [this](const Plan& plan) {
      return plan.time.total() > best_ * (1 + tolerance_);
    });
    std::ranges::stable_sort(result_.plans, better);
    if (!result_.plans.empty() || leaves.empty()) {
      return;
    }
    // By the quick sums: an answer in a second is worth more here than the last MiB.
    const auto least = std::ranges::min_element(leaves, {}, [this](const Leaf& leaf) {
      return least_memory(rehearsals_, leaf.arrangement);
    });
    // The planners of memory count bytes in 64 bits.
    constexpr double most_bytes = 1ull << 60;
    const double bytes = least_memory(rehearsals_, least->arrangement);
    require(bytes < most_bytes, "a device would hold at least ", fmt::format("{:.1e}", bytes / GiB),
            " GiB (", describe(request_, least->arrangement),
            "): are --model and --batch-tokens what you mean?");
    result_.smallest = Plan{.arrangement = least->arrangement,
                            .memory = memory_of(rehearsals_, least->arrangement),
                            .time = time_of(rehearsals_, groups_, least->arrangement)};
  }

  const PlanRequest& request_;
  double tolerance_;
  Rehearsals rehearsals_;
  GroupCost groups_;
  double best_ = std::numeric_limits<double>::infinity();
  SearchResult result_;
};

}  // namespace

std::vector<Arrangement> arrangements(const PlanRequest& request, const Pins& pins) {
  check_request(request);
  std::vector<Arrangement> all;
  // From outside in: tensor ranks, stages, rows, then what needs no rank.
  const int per_host = request.machine.network.ranks;
  for (const int tensor : powers_dividing(per_host, per_host)) {
    const int groups = request.ranks() / tensor;
    for (const int pipeline : powers_dividing(groups, request.model.layers)) {
      const bool powers =
          std::has_single_bit(unsigned(tensor)) && std::has_single_bit(unsigned(pipeline));
      if (!powers || !wanted(pins.tensor, tensor) || !wanted(pins.pipeline, pipeline)) {
        continue;
      }
      for (const char* placement : {"DPT", "PDT"}) {
        Arrangement base{.tensor = tensor, .pipeline = pipeline, .strategy = ""};
        base.placement = placement;
        // Without stages both orders are one.
        if (pipeline > 1 || base.placement == "DPT") {
          add_rows(request, pins, base, all);
        }
      }
    }
  }
  return all;
}

std::string why_none(const PlanRequest& request, const Pins& pins) {
  // The wish that alone stands in the way, with what would do in its place.
  std::string wishes;
  for (const Wish& wish : wishes_of(request, pins)) {
    if (const std::vector<Arrangement> others = arrangements(wish.request, wish.others);
        !others.empty()) {
      const std::string found = values_of(others, wish);
      return fmt::format("{} goes with nothing else that was asked{}", wish.words,
                         found.empty() ? "; leave it out" : "; what does: " + found);
    }
    wishes += (wishes.empty() ? "" : ", ") + wish.words;
  }
  if (!wishes.empty() && !arrangements(without_tree(request), {}).empty()) {
    return fmt::format("no arrangement of {} ranks has all of {}; leave some out", request.ranks(),
                       wishes);
  }
  // Each data rank reads as many sequences, so the fewest of them decide.
  int fewest = request.ranks();
  PlanRequest divisible = without_tree(request);
  divisible.batch_sequences = request.ranks();
  for (const Arrangement& one : arrangements(divisible, {})) {
    fewest = std::min(fewest, data_ranks(request, one) / one.context);
  }
  return fmt::format(
      "a batch of {} sequences of {} tokens is not dealt evenly to {} ranks: give a multiple of {} "
      "sequences, as --batch-tokens {}",
      request.batch_sequences, request.sequence, request.ranks(), fewest,
      (request.batch_sequences / fewest + 1) * fewest * request.sequence);
}

SearchResult search(const PlanRequest& request, const Pins& pins, double tolerance) {
  SearchResult result = Search(request, tolerance).run(pins);
  require(result.arrangements > 0,
          "plan: ", result.arrangements > 0 ? "" : why_none(request, pins));
  return result;
}

Plan evaluate(const PlanRequest& request, const Arrangement& arrangement) {
  check_request(request);
  const std::string reason = refusal(request, arrangement);
  require(reason.empty(), "plan: ", reason);
  Rehearsals rehearsals(request);
  GroupCost groups(request.machine);
  return {.arrangement = arrangement,
          .memory = memory_of(rehearsals, arrangement),
          .time = time_of(rehearsals, groups, arrangement)};
}

}  // namespace sprat::planning
