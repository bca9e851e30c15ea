#include "mp/partition/graph.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "comm/base/check.hpp"
#include "mp/partition/graph_starts.hpp"
#include "mp/partition/weighted_graph.hpp"

namespace sprat::mp {
namespace {

/// Which operations are one vertex, named 0 to count - 1 in the order of their first operations.
struct Grouping {
  std::vector<int> group_of;
  int count = 0;
};

Grouping numbered(const std::vector<int>& leader_of) {
  Grouping grouping;
  std::map<int, int> numbers;
  for (const int leader : leader_of) {
    const auto [at, is_new] = numbers.try_emplace(leader, grouping.count);
    grouping.count += is_new ? 1 : 0;
    grouping.group_of.push_back(at->second);
  }
  return grouping;
}

/// By group and by shared parameter.
Grouping kept_together(const OperationGraph& graph) {
  std::vector<int> leader(graph.operations.size());
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&leader](int index) {
    while (leader[static_cast<std::size_t>(index)] != index) {
      index = leader[static_cast<std::size_t>(index)];
    }
    return index;
  };
  std::map<std::string, int> groups, parameters;
  for (int index = 0; index < static_cast<int>(leader.size()); ++index) {
    const Operation& operation = graph.operations[static_cast<std::size_t>(index)];
    const auto join = [&](std::map<std::string, int>& firsts, const std::string& name) {
      const auto [low, high] =
          std::minmax({find(index), find(firsts.try_emplace(name, index).first->second)});
      leader[static_cast<std::size_t>(high)] = low;
    };
    if (!operation.group.empty()) {
      join(groups, operation.group);
    }
    for (const SharedParameter& shared : operation.piece.shared) {
      join(parameters, shared.name);
    }
  }
  std::vector<int> leaders;
  for (int index = 0; index < static_cast<int>(leader.size()); ++index) {
    leaders.push_back(find(index));
  }
  return numbered(leaders);
}

/// An operation a vertex. A shared parameter's bytes are its first user's.
WeightedGraph weighted(const OperationGraph& graph) {
  WeightedGraph result;
  std::map<std::string, int> users;
  for (const Operation& operation : graph.operations) {
    const ModelPiece& piece = operation.piece;
    double bytes = piece.parameter_bytes + piece.activation_bytes;
    for (const SharedParameter& shared : piece.shared) {
      bytes += users[shared.name]++ == 0 ? shared.bytes : 0;
    }
    result.loads.push_back({piece.time, bytes});
  }
  result.arcs.resize(result.loads.size());
  const int count = result.vertices();
  for (const DataEdge& edge : graph.edges) {
    require(edge.from >= 0 && edge.from < count && edge.to >= 0 && edge.to < count,
            "an edge goes from operation ", edge.from, " to ", edge.to, "; there are 0 to ",
            count - 1);
    result.arcs[static_cast<std::size_t>(edge.from)].push_back(
        {.to = edge.to, .weight = edge.bytes, .direction = 1});
    result.arcs[static_cast<std::size_t>(edge.to)].push_back(
        {.to = edge.from, .weight = edge.bytes, .direction = -1});
  }
  return result;
}

/// The strongly connected components (Tarjan 1972), by their first vertex; without recursion, for
/// graphs are deep. What lies on a cycle is on one partition if partitions are to have none.
class Components {
 public:
  /// `successors[v]`: where edges of v lead.
  explicit Components(const std::vector<std::vector<int>>& successors)
      : successors_(successors),
        index_(successors.size(), -1),
        low_(successors.size()),
        next_(successors.size()),
        component_(successors.size(), -1) {}

  std::vector<int> run() {
    for (std::size_t vertex = 0; vertex < index_.size(); ++vertex) {
      if (index_[vertex] < 0) {
        visit(vertex);
      }
    }
    return component_;
  }

 private:
  void enter(std::size_t vertex) {
    index_[vertex] = low_[vertex] = count_++;
    open_.push_back(vertex);
    path_.push_back(vertex);
  }
  void visit(std::size_t root) {
    enter(root);
    while (!path_.empty()) {
      const std::size_t vertex = path_.back();
      if (next_[vertex] < successors_[vertex].size()) {
        const auto to = static_cast<std::size_t>(successors_[vertex][next_[vertex]++]);
        if (index_[to] < 0) {
          enter(to);
        } else if (component_[to] < 0) {
          low_[vertex] = std::min(low_[vertex], index_[to]);
        }
        continue;
      }
      path_.pop_back();
      if (!path_.empty()) {
        low_[path_.back()] = std::min(low_[path_.back()], low_[vertex]);
      }
      if (low_[vertex] == index_[vertex]) {
        close(vertex);
      }
    }
  }
  void close(std::size_t vertex) {
    while (component_[vertex] < 0) {
      component_[open_.back()] = static_cast<int>(vertex);
      open_.pop_back();
    }
  }

  const std::vector<std::vector<int>>& successors_;
  std::vector<int> index_, low_;
  std::vector<std::size_t> next_;  // the successor to look at, by vertex
  std::vector<int> component_;     // -1: not known yet
  std::vector<std::size_t> open_, path_;
  int count_ = 0;
};

Grouping without_cycles(const OperationGraph& graph, const Grouping& grouping) {
  std::vector<std::vector<int>> successors(static_cast<std::size_t>(grouping.count));
  for (const DataEdge& edge : graph.edges) {
    successors[static_cast<std::size_t>(grouping.group_of[static_cast<std::size_t>(edge.from)])]
        .push_back(grouping.group_of[static_cast<std::size_t>(edge.to)]);
  }
  const std::vector<int> component = Components(successors).run();
  std::vector<int> leaders;
  for (const int group : grouping.group_of) {
    leaders.push_back(component[static_cast<std::size_t>(group)]);
  }
  return numbered(leaders);
}

void forget_directions(WeightedGraph& graph) {
  for (std::vector<Arc>& arcs : graph.arcs) {
    for (Arc& arc : arcs) {
      arc.direction = 0;
    }
  }
}

/// An even share and the tolerance above it, but at least the largest vertex, for that lies
/// somewhere.
Limits limits_of(const WeightedGraph& graph, const GraphRequest& request) {
  Loads all{}, largest{};
  for (const Loads& loads : graph.loads) {
    for (std::size_t i = 0; i < loads.size(); ++i) {
      all[i] += loads[i];
      largest[i] = std::max(largest[i], loads[i]);
    }
  }
  const Loads most = {std::max(largest[0], all[0] / request.partitions * request.time_tolerance),
                      std::max(largest[1], all[1] / request.partitions * request.memory_tolerance)};
  return {.most = std::vector(static_cast<std::size_t>(request.partitions), most)};
}

std::vector<int> best_of_starts(const WeightedGraph& graph, const GraphRequest& request) {
  const Limits limits = limits_of(graph, request);
  std::vector<int> best;
  CutQuality least{.overload = std::numeric_limits<double>::infinity()};
  for (int start = 0; start < request.starts; ++start) {
    const auto seed = static_cast<std::uint64_t>(start);
    std::vector<int> partition_of = request.contiguity == Contiguity::ordered
                                        ? ordered_start(graph, limits, seed)
                                        : multilevel_start(graph, limits, seed);
    refine(graph, limits, partition_of);
    const CutQuality quality = quality_of(graph, partition_of, limits);
    if (quality < least) {
      least = quality;
      best = std::move(partition_of);
    }
  }
  need(!best.empty(), "no cut of these operations has loads and bytes that are numbers");
  // The least cut is none, so vertices that carry nothing may all have come to one partition.
  fill_empty(graph, limits, best);
  return best;
}

double balance_of(const std::vector<double>& carried) {
  const double all = std::accumulate(carried.begin(), carried.end(), 0.0);
  const double most = *std::ranges::max_element(carried);
  return all > 0 ? most / (all / static_cast<double>(carried.size())) : 1;
}

}  // namespace

GraphCut cut_graph(const OperationGraph& graph, const GraphRequest& request) {
  require(request.partitions >= 1 && request.starts >= 1, "a graph has at least 1 partition and 1 ",
          "start, not ", request.partitions, " and ", request.starts);
  require(request.time_tolerance >= 1 && request.memory_tolerance >= 1,
          "tolerances are at least 1, the even share, not ", request.time_tolerance, " and ",
          request.memory_tolerance);
  const WeightedGraph operations = weighted(graph);
  Grouping grouping = kept_together(graph);
  if (request.contiguity == Contiguity::ordered) {
    grouping = without_cycles(graph, grouping);
  }
  require(request.partitions <= grouping.count, "the graph has ", grouping.count,
          " groups of operations that can be apart, too few for ", request.partitions,
          " partitions; ask for at most ", grouping.count,
          request.contiguity == Contiguity::ordered ? ", or let data go back to earlier partitions"
                                                    : "");
  WeightedGraph groups = contracted(operations, grouping.group_of, grouping.count);
  if (request.contiguity == Contiguity::free) {
    forget_directions(groups);
  }
  const std::vector<int> partition_of_group = best_of_starts(groups, request);
  GraphCut cut;
  std::vector<double> time(static_cast<std::size_t>(request.partitions)), memory(time.size());
  for (std::size_t index = 0; index < graph.operations.size(); ++index) {
    const int partition = partition_of_group[static_cast<std::size_t>(grouping.group_of[index])];
    cut.partition_of.push_back(partition);
    time[static_cast<std::size_t>(partition)] += operations.loads[index][0];
    memory[static_cast<std::size_t>(partition)] += operations.loads[index][1];
  }
  for (const DataEdge& edge : graph.edges) {
    const bool crosses = cut.partition_of[static_cast<std::size_t>(edge.from)] !=
                         cut.partition_of[static_cast<std::size_t>(edge.to)];
    cut.cut_bytes += crosses ? edge.bytes : 0;
  }
  cut.time_balance = balance_of(time);
  cut.memory_balance = balance_of(memory);
  return cut;
}

}  // namespace sprat::mp
