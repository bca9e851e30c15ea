#include "mp/partition/tree.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "comm/base/check.hpp"

namespace sprat::mp {
namespace {

constexpr double no_segments = std::numeric_limits<double>::infinity();

/// A module, or several that share a parameter: what is placed as one. Called a virtual node by
/// SMP.
struct Node {
  int parent = -1;
  std::vector<int> children;    ///< That have parameters; in execution order.
  double own = 0;               ///< Cost of what runs where this node is.
  double whole = 0;             ///< Its own and its children's.
  int places = 0;               ///< Most partitions that it can use.
  bool has_parameters = false;  ///< It, or a node under it.
  double parameter_bytes = 0, activation_bytes = 0, time = 0;

  double bytes() const noexcept { return parameter_bytes + activation_bytes; }
};

/// Neighbouring partitions. They are given in execution order, so every set of them is an interval.
struct Interval {
  int begin = 0, count = 0;
};

/// One of those among whom a node's partitions are divided.
struct Share {
  int node = -1;  ///< -1: what the first partition carries already, which stays there.
  double cost = 0;
  int places = 1;
};

/// The smallest piece that each piece has to be with, given what they share.
class Unions {
 public:
  explicit Unions(std::size_t count) : first_(count) { std::iota(first_.begin(), first_.end(), 0); }
  int find(int piece) {
    while (first_[piece] != piece) {
      piece = first_[piece] = first_[first_[piece]];
    }
    return piece;
  }
  void join(int a, int b) {
    const auto [low, high] = std::minmax({find(a), find(b)});
    first_[high] = low;
  }

 private:
  std::vector<int> first_;
};

/// The pieces and the index of the piece around each; -1 for the root.
struct Flat {
  std::vector<const ModelPiece*> pieces;
  std::vector<int> around;
};

void flatten(const Module& module, int around, Flat& flat) {
  const int index = static_cast<int>(flat.pieces.size());
  flat.pieces.push_back(&module.own);
  flat.around.push_back(around);
  for (const Module& child : module.children) {
    flatten(child, index, flat);
  }
}

Flat flat_tree(const Module& root) {
  Flat flat;
  flatten(root, -1, flat);
  return flat;
}

class TreeCut {
 public:
  TreeCut(const Module& root, const TreeRequest& request)
      : flat_(flat_tree(root)),
        request_(request),
        nodes_(flat_.pieces.size()),
        node_of_(flat_.pieces.size()),
        place_(flat_.pieces.size()),
        carried_(static_cast<std::size_t>(request.partitions)) {}

  std::vector<int> run() {
    join_sharers();
    weigh();
    fold_those_without_parameters();
    count_places();
    require(request_.partitions <= nodes_[0].places, "the model has ", nodes_[0].places,
            " modules with parameters that can be apart, too few for ", request_.partitions,
            " partitions; ask for at most ", nodes_[0].places);
    place();
    std::vector<int> result;
    for (const int node : node_of_) {
      result.push_back(place_[static_cast<std::size_t>(node)].begin);
    }
    return result;
  }

 private:
  Node& node(int index) { return nodes_[static_cast<std::size_t>(index)]; }

  /// A node is named by its first piece. It hangs where that piece stands, whose surroundings come
  /// earlier: so parents have smaller names than their children, and there are no circles.
  void join_sharers() {
    Unions unions(flat_.pieces.size());
    std::map<std::string, std::pair<int, double>> users;
    for (int piece = 0; piece < static_cast<int>(flat_.pieces.size()); ++piece) {
      for (const SharedParameter& shared : flat_.pieces[static_cast<std::size_t>(piece)]->shared) {
        const auto [at, first] = users.try_emplace(shared.name, piece, shared.bytes);
        const auto& [user, bytes] = at->second;
        require(bytes == shared.bytes, "the shared parameter \"", shared.name, "\" has ", bytes,
                " bytes in one module and ", shared.bytes, " in another; it is one parameter");
        unions.join(piece, user);
      }
    }
    std::set<std::string> counted;
    for (std::size_t piece = 0; piece < flat_.pieces.size(); ++piece) {
      const ModelPiece& own = *flat_.pieces[piece];
      node_of_[piece] = unions.find(static_cast<int>(piece));
      Node& to = node(node_of_[piece]);
      to.time += own.time;
      to.activation_bytes += own.activation_bytes;
      to.parameter_bytes += own.parameter_bytes;
      for (const SharedParameter& shared : own.shared) {
        to.parameter_bytes += counted.insert(shared.name).second ? shared.bytes : 0;
      }
    }
    for (std::size_t piece = 1; piece < flat_.pieces.size(); ++piece) {
      if (node_of_[piece] == static_cast<int>(piece)) {
        nodes_[piece].parent = node_of_[static_cast<std::size_t>(flat_.around[piece])];
      }
    }
  }

  bool is_node(int index) const { return node_of_[static_cast<std::size_t>(index)] == index; }

  /// Relative to the whole model, so that bytes and times can be added.
  void weigh() {
    double bytes = 0, time = 0;
    for (const Node& one : nodes_) {
      bytes += one.bytes();
      time += one.time;
    }
    for (Node& one : nodes_) {
      const double memory = bytes > 0 ? one.bytes() / bytes : 0;
      const double compute = time > 0 ? one.time / time : 0;
      one.own = request_.memory_weight * memory + (1 - request_.memory_weight) * compute;
    }
  }

  /// They run where the module around them is, so their cost is that module's own.
  void fold_those_without_parameters() {
    for (int index = static_cast<int>(nodes_.size()) - 1; index >= 0; --index) {
      Node& one = node(index);
      one.has_parameters = one.has_parameters || one.parameter_bytes > 0;
      one.whole += one.own;
      if (!is_node(index) || one.parent < 0) {
        continue;
      }
      Node& parent = node(one.parent);
      if (one.has_parameters) {
        parent.has_parameters = true;
        parent.whole += one.whole;
        parent.children.insert(parent.children.begin(), index);
      } else {
        parent.own += one.whole;
      }
    }
  }

  void count_places() {
    for (int index = static_cast<int>(nodes_.size()) - 1; index >= 0; --index) {
      Node& one = node(index);
      one.places += one.children.empty() || one.own > 0 ? 1 : 0;
      if (one.parent >= 0 && one.has_parameters) {
        node(one.parent).places += one.places;
      }
    }
  }

  /// Breadth first, so that what a partition carries is known before what is inside is divided.
  void place() {
    place_[0] = {0, request_.partitions};
    std::deque<int> waiting = {0};
    while (!waiting.empty()) {
      const int index = waiting.front();
      waiting.pop_front();
      const Node& one = node(index);
      const Interval mine = place_[static_cast<std::size_t>(index)];
      carried_[static_cast<std::size_t>(mine.begin)] += one.own;
      divide(mine, shares_of(one, mine));
      waiting.insert(waiting.end(), one.children.begin(), one.children.end());
    }
    // Names grow from parents to children, so a parent's place is known before its child's.
    for (int index = 1; index < static_cast<int>(nodes_.size()); ++index) {
      if (is_node(index) && !node(index).has_parameters) {
        place_[static_cast<std::size_t>(index)] =
            place_[static_cast<std::size_t>(node(index).parent)];
      }
    }
  }

  /// What is carried already takes part like a first child. It cannot be divided: one place.
  std::vector<Share> shares_of(const Node& one, Interval mine) const {
    std::vector<Share> shares;
    const double carried = carried_[static_cast<std::size_t>(mine.begin)];
    if (carried > 0) {
      shares.push_back({.node = -1, .cost = carried, .places = 1});
    }
    for (const int child : one.children) {
      const Node& at = nodes_[static_cast<std::size_t>(child)];
      shares.push_back({.node = child, .cost = at.whole, .places = at.places});
    }
    return shares;
  }

  void give(Interval partitions, std::span<const Share> shares) {
    for (const Share& share : shares) {
      if (share.node >= 0) {
        place_[static_cast<std::size_t>(share.node)] = partitions;
      }
    }
  }

  void divide(Interval mine, std::span<const Share> shares) {
    if (mine.count == 1 || shares.size() <= 1) {
      give(mine, shares);
      return;
    }
    std::vector<double> costs;
    for (const Share& share : shares) {
      costs.push_back(share.cost);
    }
    std::vector<std::size_t> begins =
        cut_in_segments(costs, std::min(mine.count, static_cast<int>(shares.size())));
    begins.push_back(shares.size());
    std::vector<std::span<const Share>> segments;
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      segments.push_back(shares.subspan(begins[i], begins[i + 1] - begins[i]));
    }
    const std::vector<int> seats = seats_of(segments, mine.count);
    int next = mine.begin;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (seats[i] == 0) {
        give({mine.begin, 1}, segments[i]);
      } else {
        divide({next, seats[i]}, segments[i]);
        next += seats[i];
      }
    }
  }

  std::vector<int> seats_of(const std::vector<std::span<const Share>>& segments, int seats) const {
    std::vector<double> votes;
    std::vector<int> most;
    for (const std::span<const Share> segment : segments) {
      double cost = 0;
      int places = 0;
      for (const Share& share : segment) {
        cost += share.cost;
        places += share.places;
      }
      const bool carried_alone = segment.size() == 1 && segment[0].node < 0;
      votes.push_back(cost);
      most.push_back(request_.seats == SeatRule::capped || carried_alone ? places : seats);
    }
    return d_hondt(votes, most, seats);
  }

  const Flat flat_;
  const TreeRequest& request_;
  std::vector<Node> nodes_;      // by first piece; those of other pieces stay empty
  std::vector<int> node_of_;     // by piece
  std::vector<Interval> place_;  // by node
  std::vector<double> carried_;  // by partition: costs of nodes that were placed there
};

}  // namespace

std::vector<const ModelPiece*> pieces_of(const Module& root) { return flat_tree(root).pieces; }

std::vector<int> d_hondt(std::span<const double> votes, std::span<const int> most, int seats) {
  std::vector<int> won(votes.size());
  for (int seat = 0; seat < seats; ++seat) {
    std::size_t best = votes.size();
    double most_votes = -1;
    for (std::size_t i = 0; i < votes.size(); ++i) {
      const double quotient = votes[i] / (won[i] + 1);
      if (won[i] < most[i] && quotient > most_votes) {
        best = i;
        most_votes = quotient;
      }
    }
    if (best < votes.size()) {
      ++won[best];
    }
  }
  return won;
}

std::vector<std::size_t> cut_in_segments(std::span<const double> costs, int segments) {
  const std::size_t count = costs.size(), parts = static_cast<std::size_t>(segments);
  require(parts >= 1 && parts <= count, "cannot cut ", count, " costs in ", segments, " segments");
  std::vector<double> before(count + 1);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  const auto sum = [&](std::size_t from, std::size_t to) { return before[to] - before[from]; };
  // least[k][end]: the least largest sum of the costs before `end` in k segments.
  std::vector least(parts + 1, std::vector<double>(count + 1, no_segments));
  least[0][0] = 0;
  for (std::size_t k = 1; k <= parts; ++k) {
    for (std::size_t end = k; end <= count; ++end) {
      for (std::size_t begin = k - 1; begin < end; ++begin) {
        least[k][end] = std::min(least[k][end], std::max(least[k - 1][begin], sum(begin, end)));
      }
    }
  }
  // Many cuts have that bottleneck, since one item often dominates; the even one is wanted. It is
  // found in a second pass, because the least squares of a beginning depend on the bottleneck of
  // the whole.
  std::vector squares(parts + 1, std::vector<double>(count + 1, no_segments));
  std::vector from(parts + 1, std::vector<std::size_t>(count + 1));
  squares[0][0] = 0;
  for (std::size_t k = 1; k <= parts; ++k) {
    for (std::size_t end = k; end <= count; ++end) {
      for (std::size_t begin = k - 1; begin < end; ++begin) {
        const double cost = sum(begin, end);
        const double with = squares[k - 1][begin] + cost * cost;
        if (cost <= least[parts][count] && with < squares[k][end]) {
          squares[k][end] = with;
          from[k][end] = begin;
        }
      }
    }
  }
  std::vector<std::size_t> begins(parts);
  for (std::size_t k = parts, end = count; k > 0; --k) {
    begins[k - 1] = end = from[k][end];
  }
  return begins;
}

std::vector<int> cut_tree(const Module& root, const TreeRequest& request) {
  require(request.partitions >= 1, "a model has at least 1 partition, not ", request.partitions);
  require(request.memory_weight >= 0 && request.memory_weight <= 1,
          "memory_weight is a share from 0 to 1, not ", request.memory_weight);
  return TreeCut(root, request).run();
}

}  // namespace sprat::mp
