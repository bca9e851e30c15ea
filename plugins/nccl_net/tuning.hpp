// Which of NCCL's algorithms and protocols a collective shall take: from rules, or from a model of
// the wire. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace sprat::nccl_net::tuning {

// NCCL's numbers.
enum class Collective : int { broadcast, reduce, all_gather, reduce_scatter, all_reduce };
enum class Algorithm : int { tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat };
enum class Protocol : int { ll, ll128, simple };
inline constexpr int algorithms = 7, protocols = 3;

/// A communicator, and what one of its nodes has to speak through.
struct Job {
  std::size_t ranks = 1, nodes = 1;
  double wire_mbit_s = 10'000;
};

/// What NCCL asks about.
struct Call {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;
};

/// A bound on ranks or nodes.
struct Bound {
  std::size_t least = 0, most = std::numeric_limits<std::size_t>::max();
  bool holds(std::size_t value) const { return value >= least && value <= most; }
};

/// "all_reduce 0-64k nodes<=4 tree ll channels=2"
struct Rule {
  Collective collective = Collective::all_reduce;
  Bound bytes, ranks, nodes;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  int channels = 0;  ///< 0: NCCL's own number.
};

/// Rules end with `;` or with their line; `#` begins a comment, as in SPRAT_TUNING. Throws
/// Error{invalid_argument} with `place`, the line and the word.
std::vector<Rule> parse_rules(std::string_view text, std::string_view place);

/// A cost that NCCL has given to what it cannot do.
inline constexpr float not_available = -1.0f;

/// One of NCCL's tables: microseconds, by algorithm and protocol.
using Costs = std::array<std::array<float, protocols>, algorithms>;

struct Choice {
  Costs costs{};
  int channels = 0;  ///< 0: NCCL's own number.
};

/// The first rule that holds, and whose algorithm and protocol NCCL can do, costs nothing; the rest
/// stays as it is.
Choice apply_rules(const std::vector<Rule>& rules, const Job& job, const Call& call,
                   const Costs& costs);

/// The time of a ring's or a tree's messages between nodes, in microseconds, in closed form; null
/// for what the model says nothing of: within one node, and other algorithms.
///
/// Ring: of all_reduce 2 (H a + (P-H) i) and 2 (P-1)/P n g; half of both for all_gather and
/// reduce_scatter; broadcast and reduce pass n once. Tree, of all_reduce: 2 (log2 H a + (P/H-1) i)
/// and 2 n g. P ranks on H nodes; a: a message between nodes, i: within one; g: time of a byte.
std::optional<float> modelled(const Job& job, const Call& call, Algorithm algorithm,
                              Protocol protocol);

/// modelled() where it says something and NCCL can do it; NCCL's algorithms that it says nothing of
/// keep their costs.
Choice apply_model(const Job& job, const Call& call, const Costs& costs);

}  // namespace sprat::nccl_net::tuning
