#include "mp/partition/graph_starts.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "comm/base/hash.hpp"

namespace sprat::mp {
namespace {

/// Numbers that are the same everywhere, which std::shuffle does not promise.
class SeededNumbers {
 public:
  explicit SeededNumbers(std::uint64_t seed) : state_(mix_bits(seed + golden_step)) {}
  std::size_t below(std::size_t limit) {
    state_ += golden_step;
    return static_cast<std::size_t>(mix_bits(state_) % limit);
  }
  std::vector<int> permutation(int count) {
    std::vector<int> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t left = order.size(); left > 1; --left) {
      std::swap(order[left - 1], order[below(left)]);
    }
    return order;
  }

 private:
  std::uint64_t state_;
};

/// Of both balances, what a vertex or a partition takes of the limit. A load that nobody has does
/// not count.
double fullness(const Loads& loads, const Loads& most) {
  double full = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    full = std::max(full, most[i] > 0 ? loads[i] / most[i] : 0);
  }
  return full;
}

Loads plus(const Loads& a, const Loads& b) { return {a[0] + b[0], a[1] + b[1]}; }

/// Groups of one or two vertices by index; pairs have the heaviest edges that are free.
struct Matching {
  std::vector<int> group_of;
  int groups = 0;
};
Matching matched(const WeightedGraph& graph, const Limits& limits, SeededNumbers& random) {
  // Heavier groups than this leave too few ways to balance the smallest graph.
  constexpr double heaviest = 0.2;
  Matching matching{.group_of = std::vector<int>(graph.loads.size(), -1)};
  for (const int vertex : random.permutation(graph.vertices())) {
    int& mine = matching.group_of[static_cast<std::size_t>(vertex)];
    if (mine >= 0) {
      continue;
    }
    const Arc* best = nullptr;
    for (const Arc& arc : graph.arcs[static_cast<std::size_t>(vertex)]) {
      const auto other = static_cast<std::size_t>(arc.to);
      const Loads both = plus(graph.loads[static_cast<std::size_t>(vertex)], graph.loads[other]);
      if (matching.group_of[other] < 0 && fullness(both, limits.most[0]) <= heaviest &&
          (best == nullptr || arc.weight > best->weight)) {
        best = &arc;
      }
    }
    mine = matching.groups++;
    if (best != nullptr) {
      matching.group_of[static_cast<std::size_t>(best->to)] = mine;
    }
  }
  return matching;
}

/// Partitions grow from one vertex each: the emptiest takes the neighbour that it is tied to most,
/// or any vertex where it has none.
std::vector<int> grown(const WeightedGraph& graph, const Limits& limits, SeededNumbers& random) {
  const auto count = static_cast<std::size_t>(graph.vertices());
  const auto partitions = static_cast<std::size_t>(limits.partitions());
  std::vector<int> partition_of(count, -1);
  std::vector<Loads> carried(partitions);
  std::vector ties(partitions, std::vector<double>(count));
  const std::vector<int> order = random.permutation(graph.vertices());
  for (std::size_t taken = 0; taken < count; ++taken) {
    std::size_t emptiest = 0;
    for (std::size_t at = 1; at < partitions; ++at) {
      const bool emptier = fullness(carried[at], limits.most[at]) <
                           fullness(carried[emptiest], limits.most[emptiest]);
      emptiest = emptier ? at : emptiest;
    }
    const std::vector<double>& tied = ties[emptiest];
    int best = -1;
    for (const int vertex : order) {
      const auto index = static_cast<std::size_t>(vertex);
      if (partition_of[index] < 0 &&
          (best < 0 || tied[index] > tied[static_cast<std::size_t>(best)])) {
        best = vertex;
      }
    }
    const auto index = static_cast<std::size_t>(best);
    partition_of[index] = static_cast<int>(emptiest);
    carried[emptiest] = plus(carried[emptiest], graph.loads[index]);
    for (const Arc& arc : graph.arcs[index]) {
      ties[emptiest][static_cast<std::size_t>(arc.to)] += arc.weight;
    }
  }
  return partition_of;
}

/// Of several growths, refined, the best.
std::vector<int> best_growth(const WeightedGraph& graph, const Limits& limits,
                             SeededNumbers& random) {
  constexpr int growths = 8;
  std::vector<int> best;
  CutQuality least{.overload = std::numeric_limits<double>::infinity()};
  for (int growth = 0; growth < growths; ++growth) {
    std::vector<int> partition_of = grown(graph, limits, random);
    refine(graph, limits, partition_of);
    const CutQuality quality = quality_of(graph, partition_of, limits);
    if (quality < least) {
      least = quality;
      best = std::move(partition_of);
    }
  }
  return best;
}

/// The vertices of one side, and the edges among them.
WeightedGraph induced(const WeightedGraph& graph, const std::vector<int>& vertices) {
  std::vector<int> name(graph.loads.size(), -1);
  for (std::size_t index = 0; index < vertices.size(); ++index) {
    name[static_cast<std::size_t>(vertices[index])] = static_cast<int>(index);
  }
  WeightedGraph result;
  for (const int vertex : vertices) {
    result.loads.push_back(graph.loads[static_cast<std::size_t>(vertex)]);
    std::vector<Arc>& arcs = result.arcs.emplace_back();
    for (Arc arc : graph.arcs[static_cast<std::size_t>(vertex)]) {
      arc.to = name[static_cast<std::size_t>(arc.to)];
      if (arc.to >= 0) {
        arcs.push_back(arc);
      }
    }
  }
  return result;
}

/// Halves, and halves of those: a cut between two is found much closer to the best than one
/// between many at once.
std::vector<int> bisected(const WeightedGraph& graph, const Limits& limits, SeededNumbers& random) {
  const auto middle = limits.most.begin() + limits.partitions() / 2;
  Limits halves{.most = std::vector<Loads>(2)};
  for (auto one = limits.most.begin(); one != limits.most.end(); ++one) {
    Loads& half = halves.most[one < middle ? 0 : 1];
    half = plus(half, *one);
  }
  std::vector<int> partition_of = best_growth(graph, halves, random);
  const int first_of[] = {0, limits.partitions() / 2};
  for (const int half : {0, 1}) {
    const Limits within{.most = half == 0 ? std::vector<Loads>(limits.most.begin(), middle)
                                          : std::vector<Loads>(middle, limits.most.end())};
    std::vector<int> vertices;
    for (std::size_t vertex = 0; vertex < graph.loads.size(); ++vertex) {
      if (partition_of[vertex] == half) {
        vertices.push_back(static_cast<int>(vertex));
      }
    }
    if (within.partitions() > 1) {
      const std::vector<int> inner = bisected(induced(graph, vertices), within, random);
      for (std::size_t index = 0; index < vertices.size(); ++index) {
        // Negative, so that the other half's vertices are not taken for these.
        partition_of[static_cast<std::size_t>(vertices[index])] =
            -1 - first_of[half] - inner[index];
      }
    } else {
      for (const int vertex : vertices) {
        partition_of[static_cast<std::size_t>(vertex)] = -1 - first_of[half];
      }
    }
  }
  for (int& partition : partition_of) {
    partition = -1 - partition;
  }
  return partition_of;
}

std::vector<int> smallest_start(const WeightedGraph& graph, const Limits& limits,
                                SeededNumbers& random) {
  std::vector<int> together = best_growth(graph, limits, random);
  if (limits.partitions() <= 2) {
    return together;
  }
  std::vector<int> halved = bisected(graph, limits, random);
  refine(graph, limits, halved);
  return quality_of(graph, halved, limits) < quality_of(graph, together, limits) ? halved
                                                                                 : together;
}

/// Vertices such that edges lead from earlier to later ones. Among those that may come next it
/// takes, by the seed, the one that was freed last, first, or any: long chains, layers, or a mix.
std::vector<int> topological_order(const WeightedGraph& graph, std::uint64_t seed,
                                   SeededNumbers& random) {
  std::vector<int> missing(graph.loads.size());
  for (std::size_t vertex = 0; vertex < missing.size(); ++vertex) {
    missing[vertex] = static_cast<int>(
        std::ranges::count(graph.arcs[vertex], -1, [](const Arc& arc) { return arc.direction; }));
  }
  std::vector<int> ready, order;
  for (const int vertex : random.permutation(graph.vertices())) {
    if (missing[static_cast<std::size_t>(vertex)] == 0) {
      ready.push_back(vertex);
    }
  }
  while (!ready.empty()) {
    const std::size_t kinds = 3;
    const std::size_t pick = seed % kinds == 0   ? ready.size() - 1
                             : seed % kinds == 1 ? 0
                                                 : random.below(ready.size());
    const int next = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    order.push_back(next);
    for (const Arc& arc : graph.arcs[static_cast<std::size_t>(next)]) {
      if (arc.direction > 0 && --missing[static_cast<std::size_t>(arc.to)] == 0) {
        ready.push_back(arc.to);
      }
    }
  }
  return order;
}

}  // namespace

std::vector<int> multilevel_start(const WeightedGraph& graph, const Limits& limits,
                                  std::uint64_t seed) {
  SeededNumbers random(seed);
  const int enough = std::max(60, 12 * limits.partitions());
  std::vector<WeightedGraph> graphs = {graph};
  std::vector<Matching> matchings;
  while (graphs.back().vertices() > enough) {
    Matching matching = matched(graphs.back(), limits, random);
    // Hardly anything left to pair: smaller graphs would only be coarser.
    if (matching.groups * 20 > graphs.back().vertices() * 19) {
      break;
    }
    graphs.push_back(contracted(graphs.back(), matching.group_of, matching.groups));
    matchings.push_back(std::move(matching));
  }
  std::vector<int> partition_of = smallest_start(graphs.back(), limits, random);
  for (std::size_t level = matchings.size(); level-- > 0;) {
    std::vector<int> finer;
    for (const int group : matchings[level].group_of) {
      finer.push_back(partition_of[static_cast<std::size_t>(group)]);
    }
    partition_of = std::move(finer);
    refine(graphs[level], limits, partition_of);
  }
  return partition_of;
}

std::vector<int> ordered_start(const WeightedGraph& graph, const Limits& limits,
                               std::uint64_t seed) {
  SeededNumbers random(seed);
  const std::vector<int> order = topological_order(graph, seed, random);
  Loads all{};
  for (const Loads& loads : graph.loads) {
    all = plus(all, loads);
  }
  // By position: the share of both loads that lies before it, and the bytes that cross there.
  std::vector<double> share(order.size() + 1), crossing(order.size() + 1);
  Loads before{};
  for (std::size_t position = 0; position < order.size(); ++position) {
    const auto vertex = static_cast<std::size_t>(order[position]);
    before = plus(before, graph.loads[vertex]);
    // A load that nobody has says nothing, so the other one counts alone; without both, the number.
    const auto part_of = [&](std::size_t load, double otherwise) {
      return all[load] > 0 ? before[load] / all[load] : otherwise;
    };
    const double number = double(position + 1) / double(order.size());
    const double time = part_of(0, part_of(1, number)), memory = part_of(1, time);
    share[position + 1] = (time + memory) / 2;
    crossing[position + 1] = crossing[position];
    for (const Arc& arc : graph.arcs[vertex]) {
      crossing[position + 1] += arc.direction * arc.weight;
    }
  }
  std::vector<int> partition_of(order.size());
  std::size_t begin = 0;
  for (int partition = 0; partition < limits.partitions(); ++partition) {
    // A quarter of a share to either side is what later moves can make good.
    const double even = 1.0 / limits.partitions(), target = even * (partition + 1);
    std::size_t end = order.size();
    for (std::size_t at = begin + 1; at < order.size() && partition + 1 < limits.partitions();
         ++at) {
      const auto off = [&](std::size_t position) { return std::abs(share[position] - target); };
      const bool near = off(at) <= even / 4, was_near = off(end) <= even / 4;
      if (near ? !was_near || crossing[at] < crossing[end] : !was_near && off(at) < off(end)) {
        end = at;
      }
    }
    for (; begin < end; ++begin) {
      partition_of[static_cast<std::size_t>(order[begin])] = partition;
    }
  }
  return partition_of;
}

}  // namespace sprat::mp
