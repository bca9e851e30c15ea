#include "tests/system/simulation/scenario.hpp"

#include <algorithm>
#include <numeric>

#include "comm/base/check.hpp"
#include "tests/system/simulation/random.hpp"

namespace sprat::simulation {
namespace {

using namespace std::chrono_literals;

constexpr int most_ranks = 6;
constexpr int most_steps = 8;
constexpr int most_calls = 4;
// More calls than a communicator remembers of its own accord.
constexpr int least_burst = 70;
constexpr std::size_t most_burst = 300;
// The most of what leaves few ranks waiting for others: such calls pile up.
constexpr What burst_calls[] = {What::gather, What::reduce, What::scatter, What::broadcast,
                                What::all_gather};

// Those in which small whole numbers are exact.
constexpr DType dtypes[] = {DType::u8,  DType::i16,  DType::i32, DType::i64,
                            DType::f16, DType::bf16, DType::f32, DType::f64};
constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                            ReduceOp::avg};

template <class Range>
auto pick(Random& random, const Range& range) {
  return range[random.below(std::size(range))];
}

std::string draw_hosts(Random& random, int ranks) {
  const int hosts = random.between(1, 3);
  std::string names;
  const bool blocks = random.once_in(2);
  for (int rank = 0; rank < ranks; ++rank) {
    const int host = blocks ? rank * hosts / ranks : static_cast<int>(random.below(hosts));
    names += (rank == 0 ? "" : ",") + std::string(1, static_cast<char>('a' + host));
  }
  return ranks == 1 ? "a" : names;
}

Call draw_call(Random& random, const Scenario& scenario) {
  Call call;
  call.what = static_cast<What>(random.below(7));
  call.family = random.below(scenario.families.size());
  call.count = random.once_in(10)  ? 0
               : random.once_in(8) ? random.below(20'000)
                                   : random.any_scale(3'000);
  call.dtype = pick(random, dtypes);
  call.op = pick(random, ops);
  call.in_place = random.once_in(3);
  call.root = static_cast<int>(random.below(1'000));
  call.shift = static_cast<int>(random.below(1'000));
  call.tag = random.between(0, 3);
  if (call.what == What::barrier) {
    call.count = 0;
  }
  call.shared = random.once_in(3) ? ~std::uint64_t{0} : random.once_in(2) ? 0 : random.next();
  return call;
}

/// A call that was made before, the same again: such calls can be eager.
Step draw_again(Random& random, const Scenario& scenario) {
  Step step = pick(random, scenario.steps);
  step.blocking = step.calls.size() == 1;
  return step;
}

Step draw_step(Random& random, Scenario& scenario) {
  if (!scenario.steps.empty() && random.once_in(2)) {
    Step again = draw_again(random, scenario);
    if (!again.splits) {
      return again;
    }
  }
  Step step;
  step.splits = scenario.families.size() < 4 && random.once_in(6);
  if (step.splits) {
    step.parent = random.below(scenario.families.size());
    step.colors = random.next();
    const Family& parent = scenario.families[step.parent];
    Family child;
    for (int rank = 0; rank < scenario.ranks; ++rank) {
      child.push_back(2 * parent[rank] + static_cast<int>(step.colors >> rank & 1));
    }
    scenario.families.push_back(std::move(child));
    return step;
  }
  const int calls = random.once_in(2) ? 1 : random.between(1, most_calls);
  for (int index = 0; index < calls; ++index) {
    step.calls.push_back(draw_call(random, scenario));
  }
  step.waits.resize(step.calls.size());
  std::iota(step.waits.begin(), step.waits.end(), 0);
  for (std::size_t at = step.waits.size(); at > 1; --at) {
    std::swap(step.waits[at - 1], step.waits[random.below(at)]);
  }
  step.blocking = step.calls.size() == 1 && random.once_in(2);
  return step;
}

/// Short calls, most of them with roots that take turns.
Step draw_burst(Random& random, const Scenario& scenario, std::size_t most_in_flight) {
  Step step;
  step.most_in_flight = most_in_flight;
  const std::size_t family = random.below(scenario.families.size());
  const What usual = pick(random, burst_calls);
  const int calls = random.between(least_burst, static_cast<int>(most_burst));
  for (int index = 0; index < calls; ++index) {
    Call call = draw_call(random, scenario);
    call.what = random.once_in(16) ? pick(random, burst_calls) : usual;
    call.family = random.once_in(16) ? call.family : family;
    call.count = random.below(100);
    call.root = index;
    step.calls.push_back(call);
  }
  step.waits.resize(step.calls.size());
  std::iota(step.waits.begin(), step.waits.end(), 0);
  return step;
}

/// First so many calls that the first are forgotten, then so many at once that more are remembered.
void add_bursts(Random& random, Scenario& scenario) {
  scenario.first_burst = scenario.steps.size() - 1;
  for (const std::size_t most_in_flight : {1 + random.below(50), std::uint64_t{most_burst}}) {
    scenario.steps.insert(scenario.steps.end() - 1, draw_burst(random, scenario, most_in_flight));
  }
}

Fault draw_fault(Random& random, const Scenario& scenario) {
  using Kind = Fault::Kind;
  Fault fault;
  if (scenario.ranks == 1 || random.once_in(3)) {
    return fault;
  }
  fault.kind = static_cast<Kind>(1 + random.below(6));
  if (fault.kind == Kind::kill && !scenario.processes) {
    fault.kind = Kind::stop;
  }
  fault.rank = static_cast<int>(random.below(scenario.ranks));
  fault.step = random.between(0, static_cast<int>(scenario.steps.size()) - 1);
  const Step& step = scenario.steps[fault.step];
  const bool only_passes = std::all_of(step.calls.begin(), step.calls.end(),
                                       [](const Call& call) { return call.what == What::pass; });
  if (fault.kind == Kind::differ && only_passes) {
    fault.kind = Kind::abort;  // nobody compares what is sent with what is received, but its length
  }
  fault.points = random.any_scale(400);
  const bool joins = random.once_in(10);
  if (fault.kind == Kind::kill && joins) {
    fault.step = -1;
    fault.points = random.below(12);
  }
  return fault;
}

/// By family, of which it is split; of the world, itself.
std::vector<std::size_t> parents_of_families(const Scenario& scenario) {
  std::vector<std::size_t> parents = {0};
  for (const Step& step : scenario.steps) {
    if (step.splits) {
      parents.push_back(step.parent);
    }
  }
  return parents;
}

std::size_t families_before(const Scenario& scenario, int step) {
  const auto end = scenario.steps.begin() + step;
  return 1 + static_cast<std::size_t>(std::count_if(scenario.steps.begin(), end,
                                                    [](const Step& one) { return one.splits; }));
}

}  // namespace

std::string name(What what) {
  constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                   "all_to_all", "barrier",    "pass",           "reduce",
                                   "gather",     "scatter",    "all_gatherv"};
  return names[static_cast<int>(what)];
}

std::string name(Fault::Kind kind) {
  constexpr const char* names[] = {"none", "kill", "pause", "stop", "absent", "differ", "abort"};
  return names[static_cast<int>(kind)];
}

Scenario draw_scenario(std::uint64_t seed) {
  Random random(seed ^ 0x5eed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.ranks = random.once_in(20) ? 1 : random.between(2, most_ranks);
  scenario.processes = !random.once_in(4);
  scenario.hosts = draw_hosts(random, scenario.ranks);
  // Not less: a window has at least 64 elements of every block, and two must fit.
  scenario.staging_bytes = std::size_t{16384} << random.below(6);
  scenario.families.emplace_back(scenario.ranks, 0);
  const int steps = random.between(1, most_steps);
  for (int step = 0; step < steps; ++step) {
    scenario.steps.push_back(draw_step(random, scenario));
  }
  // Nobody leaves before all have called everything.
  scenario.steps.push_back({.calls = {Call{}}, .waits = {0}});
  scenario.fault = draw_fault(random, scenario);
  using Kind = Fault::Kind;
  const Kind kind = scenario.fault.kind;
  scenario.timeout = kind == Kind::stop || kind == Kind::absent ? 3s : 60s;
  if (kind == Kind::pause) {
    scenario.fault.duration = std::chrono::milliseconds(random.below(10'000));
  } else if (kind == Kind::stop) {
    scenario.fault.duration = std::chrono::milliseconds(6'000 + random.below(6'000));
  }
  // From numbers of its own: without a burst, a seed is what it was before there were any.
  Random more(seed ^ 0xb0257);
  if (scenario.ranks > 1 && more.once_in(kind == Kind::none ? 2 : 16)) {
    add_bursts(more, scenario);
    scenario.busy = kind == Kind::none;
  }
  // And so is a seed whose blocks are even.
  Random lengths(seed ^ 0x1e46);
  for (Step& step : scenario.steps) {
    for (Call& call : step.calls) {
      if (call.what == What::all_gather && step.calls.size() <= most_calls && lengths.once_in(2)) {
        call.what = What::all_gatherv;
        call.count = lengths.below(20'000);
        call.uneven = lengths.next();
      }
    }
  }
  // And one whose communicators fail together.
  Random scopes(seed ^ 0xd0a1);
  scenario.alone = scenario.families.size() > 1 && scopes.once_in(2) &&
                   (kind == Kind::kill || kind == Kind::differ || kind == Kind::abort);
  if (scenario.alone && kind == Kind::abort) {
    scenario.fault.family = scopes.below(families_before(scenario, scenario.fault.step));
  }
  return scenario;
}

bool may_fail(const Scenario& scenario, int rank, std::size_t family) {
  using Kind = Fault::Kind;
  const Fault& fault = scenario.fault;
  const auto shared = [&](std::size_t one) {
    return scenario.families[one][rank] == scenario.families[one][fault.rank];
  };
  // The coordinator lives beside rank 0, and the world stands for the job.
  if ((fault.kind == Kind::kill && fault.rank == 0) ||
      (fault.kind == Kind::abort && fault.family == 0)) {
    return true;
  }
  const std::vector<std::size_t> parents = parents_of_families(scenario);
  for (std::size_t one = family;; one = parents[one]) {
    const bool hit = fault.kind == Kind::kill    ? true
                     : fault.kind == Kind::abort ? one == fault.family
                     : fault.kind == Kind::differ
                         ? one == scenario.steps[fault.step].calls[differing_call(scenario)].family
                         : false;
    if (hit && shared(one)) {
      return true;
    }
    if (one == 0) {
      return false;
    }
  }
}

std::size_t differing_call(const Scenario& scenario) {
  const std::vector<Call>& calls = scenario.steps[scenario.fault.step].calls;
  const auto found = std::find_if(calls.begin(), calls.end(),
                                  [](const Call& call) { return call.what != What::pass; });
  return static_cast<std::size_t>(found - calls.begin());
}

Call other_call(const Scenario& scenario, const Call& call) {
  Call other = call;
  if (call.what == What::barrier || scenario.seed % 2 == 0) {
    other.what = call.what == What::all_reduce ? What::all_gather : What::all_reduce;
    other.count = call.what == What::barrier ? 5 : call.count;
  } else {
    other.count = call.count + 1;
  }
  return other;
}

Call fitted(Call call, int size) {
  call.root %= size;
  call.shift = size == 1 ? 0 : 1 + call.shift % (size - 1);
  if (call.what == What::pass && size == 1) {
    call.what = What::barrier;
    call.count = 0;
  }
  return call;
}

std::vector<std::size_t> block_counts(const Call& call, std::size_t ranks) {
  Random random(call.uneven);
  std::vector<std::size_t> counts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t lengths[] = {call.count, 6 * call.count, call.count / 16, 0};
    counts.push_back(lengths[random.below(rank == 0 ? 2 : 4)]);  // one tells counts apart
  }
  return counts;
}

std::vector<int> members(const Family& family, int world_rank) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(family.size()); ++rank) {
    if (family[rank] == family[world_rank]) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::string words(const Call& call) {
  return call.what == What::barrier ? "barrier"
         : call.what == What::all_gatherv
             ? text(name(call.what), " of ")  // counts, of which long lists are cut short
             : text(name(call.what), " of ", call.count, " ", sprat::name(call.dtype));
}

std::string describe(const Scenario& scenario) {
  std::string out = text("seed ", scenario.seed, ": ", scenario.ranks, " ranks on ", scenario.hosts,
                         scenario.processes ? "" : " in one process", ", ", scenario.steps.size(),
                         " steps", scenario.busy ? ", a busy machine" : "",
                         scenario.alone ? ", communicators fail alone" : "");
  const Fault& fault = scenario.fault;
  if (fault.kind != Fault::Kind::none) {
    out += text(", ", name(fault.kind), " of rank ", fault.rank, " in step ", fault.step);
  }
  return out;
}

}  // namespace sprat::simulation
