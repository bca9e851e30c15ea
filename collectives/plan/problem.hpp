// What is to be done together: only what every rank knows by contract.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "sprat/reduction.hpp"

namespace sprat::collectives {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  barrier,
  reduce,
  gather,
  scatter,
  gatherv,
  scatterv,
  all_to_allv,
};
const char* name(Collective collective) noexcept;
/// Every collective that has buffers, for tables.
std::span<const Collective> all_collectives() noexcept;
bool reduces(Collective collective) noexcept;
/// One rank, the root, is different from the others.
bool has_root(Collective collective) noexcept;
/// Ranks know only the counts of what they themselves send and receive, so one message goes from
/// each to each that it has to do with, straight from and to the callers' memory.
bool exchanges(Collective collective) noexcept;

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

/// Elements of blocks that lie one after the other. Immutable.
class BlockCounts {
 public:
  explicit BlockCounts(std::vector<std::size_t> counts);
  int blocks() const { return static_cast<int>(counts_.size()); }
  std::size_t count(int block) const { return counts_[block]; }
  /// Elements before a block.
  std::size_t offset(int block) const { return offsets_[block]; }
  std::size_t total() const { return offsets_.back(); }
  std::size_t largest() const;
  /// The same part, [first, first + count), of every block that reaches so far.
  BlockCounts window(std::size_t first, std::size_t count) const;

 private:
  std::vector<std::size_t> counts_, offsets_;  ///< offsets_ has the total at its end.
};

struct Problem {
  Collective collective = Collective::barrier;
  int rank = 0;                              ///< The rank a plan is made for.
  std::shared_ptr<const Grouping> grouping;  ///< Shared: one per communicator, by every plan of it.
  /// Elements of one block; of the largest if `counts` differ. all_reduce, broadcast, reduce: the
  /// whole buffer. Otherwise what one rank contributes to another, so a buffer of `ranks` blocks
  /// has ranks * count. gatherv, scatterv: of this rank's own block.
  std::size_t count = 0;
  /// Elements of each rank's block where they differ; null: `count` each. all_gather and
  /// reduce_scatter: the same on every rank. gatherv, scatterv: null but on the root. all_to_allv:
  /// of the input's blocks. Shared by a plan's windows and by the history of calls.
  std::shared_ptr<const BlockCounts> counts = nullptr;
  std::shared_ptr<const BlockCounts> out_counts =
      nullptr;  ///< all_to_allv: of the output's blocks.
  DType input = DType::f32;
  DType output = DType::f32;
  Reduction op = ReduceOp::sum;
  int root = 0;
  /// No rank's output lies over its input. Only ranks of one host can know, once all have called.
  bool out_of_place = false;

  int ranks() const { return grouping->ranks(); }
  /// What partial results are held in: f32 for 16-bit and 8-bit floats, else the input's own type.
  DType accumulator() const;
  /// Bytes a caller passes: the larger of input and output over a rank. 0 where counts are not
  /// known to every rank.
  std::size_t payload_bytes() const;
};

/// A contiguous piece of a block.
struct Slice {
  std::size_t offset = 0, count = 0;
};
/// Piece `index` of `parts` nearly equal ones; every offset is a multiple of 64 elements.
Slice slice(std::size_t count, int parts, int index);

/// That of a whole reduction.
Arithmetic arithmetic_of(const Problem& problem);

}  // namespace sprat::collectives
