#include "mp/partition/weighted_graph.hpp"

#include <algorithm>
#include <queue>

namespace sprat::mp {
namespace {

/// Sums that are reached by other orders differ by roundings; such a difference is no overload.
constexpr double rounding = 1e-9;

double excess(const Loads& carried, const Loads& most) {
  double sum = 0;
  for (std::size_t i = 0; i < carried.size(); ++i) {
    if (carried[i] > most[i] * (1 + rounding)) {
      sum += most[i] > 0 ? carried[i] / most[i] - 1 : carried[i];
    }
  }
  return sum;
}

Loads sum_of(const Loads& a, const Loads& b, double factor) {
  return {a[0] + factor * b[0], a[1] + factor * b[1]};
}

/// A vertex and where it would go.
struct Move {
  double gain = 0;    ///< What the cut loses.
  double relief = 0;  ///< What the overload loses.
  int vertex = -1, to = -1;
  int stamp = 0;  ///< Of the vertex's surroundings when this was computed.

  bool exists() const noexcept { return to >= 0; }
};

/// The queue's order. While partitions are overloaded, relief for the least loss comes first.
struct Worse {
  bool operator()(const Move& a, const Move& b) const noexcept {
    if (a.gain != b.gain) {
      return a.gain < b.gain;
    }
    return a.vertex != b.vertex ? a.vertex > b.vertex : a.to > b.to;
  }
};

class Refinement {
 public:
  Refinement(const WeightedGraph& graph, const Limits& limits, std::vector<int>& partition_of)
      : graph_(graph),
        limits_(limits),
        at_(partition_of),
        carried_(static_cast<std::size_t>(limits.partitions())),
        locked_(partition_of.size()),
        stamp_(partition_of.size()),
        weight_to_(static_cast<std::size_t>(limits.partitions())) {
    for (int vertex = 0; vertex < graph.vertices(); ++vertex) {
      carry(at(vertex), vertex, 1);
    }
    now_ = quality_of(graph, partition_of, limits);
  }

  void run() {
    constexpr int most_passes = 20;
    for (int pass = 0; pass < most_passes; ++pass) {
      relieve();
      if (!improve()) {
        return;
      }
    }
  }

 private:
  int& at(int vertex) { return at_[static_cast<std::size_t>(vertex)]; }
  const std::vector<Arc>& arcs(int vertex) const {
    return graph_.arcs[static_cast<std::size_t>(vertex)];
  }
  const Loads& loads(int vertex) const { return graph_.loads[static_cast<std::size_t>(vertex)]; }
  Loads& carried(int partition) { return carried_[static_cast<std::size_t>(partition)]; }
  const Loads& most(int partition) const {
    return limits_.most[static_cast<std::size_t>(partition)];
  }
  void carry(int partition, int vertex, double sign) {
    carried(partition) = sum_of(carried(partition), loads(vertex), sign);
  }

  /// What the overload loses if the vertex moves.
  double relief_of(int vertex, int to) {
    const Loads &from_now = carried(at(vertex)), &to_now = carried(to);
    const Loads from_then = sum_of(from_now, loads(vertex), -1);
    const Loads to_then = sum_of(to_now, loads(vertex), 1);
    return excess(from_now, most(at(vertex))) - excess(from_then, most(at(vertex))) +
           excess(to_now, most(to)) - excess(to_then, most(to));
  }

  /// Its best move that overloads nobody further; without `to` if there is none.
  template <class Better>
  Move best_move(int vertex, const Better& better) {
    const int from = at(vertex);
    int lowest = 0, highest = limits_.partitions() - 1;
    std::ranges::fill(weight_to_, 0.0);
    for (const Arc& arc : arcs(vertex)) {
      const int other = at(arc.to);
      weight_to_[static_cast<std::size_t>(other)] += arc.weight;
      lowest = arc.direction < 0 ? std::max(lowest, other) : lowest;
      highest = arc.direction > 0 ? std::min(highest, other) : highest;
    }
    Move best;
    for (int to = lowest; to <= highest; ++to) {
      const double relief = to == from ? -1 : relief_of(vertex, to);
      if (relief < -rounding) {
        continue;
      }
      const Move move{.gain = weight_to_[static_cast<std::size_t>(to)] -
                              weight_to_[static_cast<std::size_t>(from)],
                      .relief = relief,
                      .vertex = vertex,
                      .to = to,
                      .stamp = stamp_[static_cast<std::size_t>(vertex)]};
      if (!best.exists() || better(move, best)) {
        best = move;
      }
    }
    return best;
  }
  Move best_gain(int vertex) {
    return best_move(vertex, [](const Move& a, const Move& b) {
      return a.gain != b.gain ? a.gain > b.gain : a.relief > b.relief;
    });
  }

  void apply(const Move& move) {
    carry(at(move.vertex), move.vertex, -1);
    carry(move.to, move.vertex, 1);
    at(move.vertex) = move.to;
    now_.cut -= move.gain;
    now_.overload -= move.relief;
  }

  /// Moves out of overloaded partitions until none is, or nothing helps. Each move lowers the
  /// overload, so this ends.
  void relieve() {
    const auto loss = [](const Move& move) { return -move.gain / move.relief; };
    const auto better = [&](const Move& a, const Move& b) {
      return a.relief > rounding && (b.relief <= rounding || loss(a) < loss(b));
    };
    while (now_.overload > rounding) {
      Move best;
      for (int vertex = 0; vertex < graph_.vertices(); ++vertex) {
        if (excess(carried(at(vertex)), most(at(vertex))) == 0) {
          continue;
        }
        const Move move = best_move(vertex, better);
        if (move.exists() && move.relief > rounding && (!best.exists() || better(move, best))) {
          best = move;
        }
      }
      if (!best.exists()) {
        return;
      }
      apply(best);
    }
  }

  /// One pass; false if it found nothing better.
  bool improve() {
    // A pass that finds nothing for so long hardly finds anything later.
    const std::size_t patience = std::max<std::size_t>(100, at_.size() / 10);
    locked_.assign(locked_.size(), false);
    std::priority_queue<Move, std::vector<Move>, Worse> queue;
    const auto offer = [&](int vertex) {
      ++stamp_[static_cast<std::size_t>(vertex)];
      if (const Move move = best_gain(vertex); move.exists()) {
        queue.push(move);
      }
    };
    for (int vertex = 0; vertex < graph_.vertices(); ++vertex) {
      if (on_the_border(vertex)) {
        offer(vertex);
      }
    }
    const CutQuality before = now_;
    CutQuality best = now_;
    std::vector<Move> undo;
    std::size_t kept = 0;
    while (!queue.empty() && undo.size() < kept + patience) {
      const Move next = queue.top();
      queue.pop();
      const std::size_t vertex = static_cast<std::size_t>(next.vertex);
      if (locked_[vertex] || next.stamp != stamp_[vertex]) {
        continue;
      }
      // Partitions fill and empty meanwhile, which no stamp tells.
      const Move move = best_gain(next.vertex);
      if (!move.exists() || move.gain < next.gain) {
        if (move.exists()) {
          queue.push(move);
        }
        continue;
      }
      undo.push_back({.gain = -move.gain,
                      .relief = -move.relief,
                      .vertex = move.vertex,
                      .to = at(move.vertex),
                      .stamp = 0});
      apply(move);
      locked_[vertex] = true;
      for (const Arc& arc : arcs(move.vertex)) {
        if (!locked_[static_cast<std::size_t>(arc.to)]) {
          offer(arc.to);
        }
      }
      if (is_better(now_, best)) {
        best = now_;
        kept = undo.size();
      }
    }
    for (; undo.size() > kept; undo.pop_back()) {
      apply(undo.back());
    }
    return is_better(best, before);
  }

  static bool is_better(const CutQuality& a, const CutQuality& b) {
    const double slack = rounding * (1 + b.cut);
    return a.overload < b.overload - rounding ||
           (a.overload < b.overload + rounding && a.cut < b.cut - slack);
  }

  bool on_the_border(int vertex) {
    return std::ranges::any_of(arcs(vertex),
                               [&](const Arc& arc) { return at(arc.to) != at(vertex); });
  }

  const WeightedGraph& graph_;
  const Limits& limits_;
  std::vector<int>& at_;
  std::vector<Loads> carried_;  // by partition
  std::vector<bool> locked_;    // moved in this pass
  std::vector<int> stamp_;      // grows when a neighbour moves
  std::vector<double> weight_to_;
  CutQuality now_;
};

/// A vertex that leaves its partition, and what that changes.
struct Departure {
  int vertex = -1;
  bool behind = false;  ///< Of the two partitions that there are then, it is the later one.
  CutQuality change;
};

Departure cheapest_departure(const WeightedGraph& graph, const Limits& limits,
                             const std::vector<int>& partition_of) {
  std::vector<Loads> carried(limits.most.size());
  std::vector<int> members(limits.most.size());
  for (std::size_t vertex = 0; vertex < partition_of.size(); ++vertex) {
    const auto mine = static_cast<std::size_t>(partition_of[vertex]);
    carried[mine] = sum_of(carried[mine], graph.loads[vertex], 1);
    ++members[mine];
  }
  Departure best;
  for (std::size_t vertex = 0; vertex < partition_of.size(); ++vertex) {
    const auto from = static_cast<std::size_t>(partition_of[vertex]);
    if (members[from] < 2) {
      continue;
    }
    bool takes = false, gives = false;
    double cut = 0;
    for (const Arc& arc : graph.arcs[vertex]) {
      if (partition_of[static_cast<std::size_t>(arc.to)] == partition_of[vertex]) {
        takes = takes || arc.direction < 0;
        gives = gives || arc.direction > 0;
        cut += arc.weight;
      }
    }
    if (takes && gives) {
      continue;  // the rest comes both before and behind it
    }
    const Loads &own = graph.loads[vertex], &most = limits.most[from];
    const Loads rest = sum_of(carried[from], own, -1);
    const CutQuality change{
        .overload = excess(own, most) + excess(rest, most) - excess(carried[from], most),
        .cut = cut};
    if (best.vertex < 0 || change < best.change) {
      best = {.vertex = static_cast<int>(vertex), .behind = takes, .change = change};
    }
  }
  return best;
}

/// The first that has no vertex; -1 if there is none.
int empty_partition(const Limits& limits, const std::vector<int>& partition_of) {
  for (int partition = 0; partition < limits.partitions(); ++partition) {
    if (std::ranges::find(partition_of, partition) == partition_of.end()) {
      return partition;
    }
  }
  return -1;
}

}  // namespace

WeightedGraph contracted(const WeightedGraph& graph, std::span<const int> group_of, int groups) {
  WeightedGraph result{.loads = std::vector<Loads>(static_cast<std::size_t>(groups)),
                       .arcs = std::vector<std::vector<Arc>>(static_cast<std::size_t>(groups))};
  std::vector<std::vector<int>> members(static_cast<std::size_t>(groups));
  for (int vertex = 0; vertex < graph.vertices(); ++vertex) {
    const auto group = static_cast<std::size_t>(group_of[static_cast<std::size_t>(vertex)]);
    members[group].push_back(vertex);
    result.loads[group] =
        sum_of(result.loads[group], graph.loads[static_cast<std::size_t>(vertex)], 1);
  }
  // Where the arc to a group stands in the list of the group at hand; -1: not there yet.
  std::vector<int> place(static_cast<std::size_t>(groups), -1);
  for (std::size_t group = 0; group < members.size(); ++group) {
    std::vector<Arc>& arcs = result.arcs[group];
    for (const int member : members[group]) {
      for (const Arc& arc : graph.arcs[static_cast<std::size_t>(member)]) {
        const int to = group_of[static_cast<std::size_t>(arc.to)];
        if (to == static_cast<int>(group)) {
          continue;
        }
        int& index = place[static_cast<std::size_t>(to)];
        if (index < 0) {
          index = static_cast<int>(arcs.size());
          arcs.push_back({.to = to, .weight = 0, .direction = arc.direction});
        }
        Arc& joined = arcs[static_cast<std::size_t>(index)];
        joined.weight += arc.weight;
        joined.direction = joined.direction == arc.direction ? arc.direction : 0;
      }
    }
    for (const Arc& arc : arcs) {
      place[static_cast<std::size_t>(arc.to)] = -1;
    }
  }
  return result;
}

CutQuality quality_of(const WeightedGraph& graph, std::span<const int> partition_of,
                      const Limits& limits) {
  std::vector<Loads> carried(static_cast<std::size_t>(limits.partitions()));
  CutQuality quality;
  for (std::size_t vertex = 0; vertex < partition_of.size(); ++vertex) {
    Loads& mine = carried[static_cast<std::size_t>(partition_of[vertex])];
    mine = sum_of(mine, graph.loads[vertex], 1);
    for (const Arc& arc : graph.arcs[vertex]) {
      const bool cut = partition_of[static_cast<std::size_t>(arc.to)] != partition_of[vertex];
      quality.cut += cut ? arc.weight / 2 : 0;  // each edge is seen from both ends
    }
  }
  for (std::size_t partition = 0; partition < carried.size(); ++partition) {
    quality.overload += excess(carried[partition], limits.most[partition]);
  }
  return quality;
}

void refine(const WeightedGraph& graph, const Limits& limits, std::vector<int>& partition_of) {
  Refinement(graph, limits, partition_of).run();
}

// A division never makes a partition carry more, so no balance gets worse.
void fill_empty(const WeightedGraph& graph, const Limits& limits, std::vector<int>& partition_of) {
  for (int empty = empty_partition(limits, partition_of); empty >= 0;
       empty = empty_partition(limits, partition_of)) {
    const Departure departure = cheapest_departure(graph, limits, partition_of);
    for (int& partition : partition_of) {
      partition -= partition > empty ? 1 : 0;
    }
    const int divided = partition_of[static_cast<std::size_t>(departure.vertex)];
    for (std::size_t vertex = 0; vertex < partition_of.size(); ++vertex) {
      const bool departs = static_cast<int>(vertex) == departure.vertex;
      int& partition = partition_of[vertex];
      partition += partition > divided || (partition == divided && departs == departure.behind);
    }
  }
}

}  // namespace sprat::mp
