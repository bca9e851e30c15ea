// What is to be done together: only what every rank knows by contract.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "sprat/reduction.hpp"

namespace sprat::collectives {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  barrier,
};
const char* name(Collective collective) noexcept;
/// Every collective that has buffers, for tables.
std::span<const Collective> all_collectives() noexcept;
bool reduces(Collective collective) noexcept;

/// Consecutive ranks [first, last).
struct RankRange {
  int first = 0, last = 0;
  int size() const { return last - first; }
  bool operator==(const RankRange&) const = default;
};

/// Which ranks share a host. Immutable; hosts are numbered in order of their lowest rank.
class Grouping {
 public:
  /// host_of[r] is any label of rank r's host.
  explicit Grouping(const std::vector<int>& host_of);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(members_.size()); }
  int host_of(int rank) const { return host_of_[rank]; }
  bool together(int a, int b) const { return host_of_[a] == host_of_[b]; }
  /// Ranks of a host, ascending.
  const std::vector<int>& members(int host) const { return members_[host]; }
  /// Position of a rank among its host's members.
  int local_index(int rank) const { return local_index_[rank]; }
  /// The maximal subtrees of tree(0, ranks) that lie wholly on a host, ascending.
  /// What a host sends of a canonical reduction is one partial for each.
  const std::vector<RankRange>& subtrees(int host) const { return subtrees_[host]; }

 private:
  std::vector<int> host_of_, local_index_;
  std::vector<std::vector<int>> members_;
  std::vector<std::vector<RankRange>> subtrees_;
};

/// The canonical tree: tree(first, last) splits at the largest power of two below its size.
int split_point(RankRange range);

struct Problem {
  Collective collective = Collective::barrier;
  int rank = 0;                              ///< The rank a plan is made for.
  std::shared_ptr<const Grouping> grouping;  ///< Shared: one per communicator, by every plan of it.
  /// Elements of one block. all_reduce, broadcast: the whole buffer. all_gather, reduce_scatter,
  /// all_to_all: what one rank contributes to another, so a buffer of `ranks` blocks has ranks *
  /// count.
  std::size_t count = 0;
  DType input = DType::f32;
  DType output = DType::f32;
  Reduction op = ReduceOp::sum;
  int root = 0;

  int ranks() const { return grouping->ranks(); }
  /// What partial results are held in: f32 for 16-bit and 8-bit floats, else the input's own type.
  DType accumulator() const;
  /// Bytes a caller passes: the larger of input and output over a rank.
  std::size_t payload_bytes() const;
};

/// A contiguous piece of a block.
struct Slice {
  std::size_t offset = 0, count = 0;
};
/// Piece `index` of `parts` nearly equal ones; every offset is a multiple of 64 elements.
Slice slice(std::size_t count, int parts, int index);

}  // namespace sprat::collectives
