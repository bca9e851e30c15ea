// A piece of a copy or of a reduction: memory to read, memory to write, and nothing else of the
// rank's, so that any thread may do it.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// One piece at a time; memory is kept from piece to piece.
class BulkWork final {
 public:
  /// `context` outlives it.
  explicit BulkWork(const comm::Context& context) : context_(context) {}

  struct Source {
    const std::byte* data = nullptr;
    /// World rank in whose process that lies, to be read through the kernel; -1: it lies in this
    /// one, or is mapped.
    int foreign_rank = -1;
  };
  struct Target {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool past_cache = false;
  };
  struct Contribution {
    Source source;
    RankRange covers;
    bool partial = false;
    std::size_t element_bytes = 0;
  };

  void set_copy(const Source& from, const Target& to);
  /// A reduction is its contributions, added one after the other, and then what is made of them.
  void clear_contributions() { contributions_.clear(); }
  void add(const Contribution& contribution) { contributions_.push_back(contribution); }
  /// Of at most `count` elements, fewer if what is fetched of other processes would not stay in the
  /// cache. Returns how many.
  std::size_t set_reduction(const Arithmetic& arithmetic, std::byte* to, std::size_t count);

  /// Does it. Throws Unmapped, and what a user's operation throws.
  void run();

 private:
  void run_copy();
  void run_reduction();
  void fetch(const Source& source, std::byte* to, std::size_t bytes) const;

  const comm::Context& context_;
  bool reduces_ = false;
  Source from_;
  Target to_;
  Arithmetic arithmetic_;
  std::size_t count_ = 0;
  std::vector<Contribution> contributions_;
  std::vector<Term> terms_;
  std::vector<std::byte> room_;  ///< For what is fetched of other processes,
  std::size_t room_each_ = 0;    ///< so many bytes for each.
};

}  // namespace sprat::collectives
