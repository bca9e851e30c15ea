// A piece of a copy or of a reduction: memory to read, memory to write, and nothing else of the
// rank's, so that any thread may do it without the token.
#pragma once

#include <cstddef>
#include <exception>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// One piece at a time: it is set, run once by any thread, and collected. Memory is kept from piece
/// to piece.
class BulkWork final : public comm::BulkTask {
 public:
  /// `context` outlives it.
  explicit BulkWork(const comm::Context& context) : context_(context) {}

  struct Origin {
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
    Origin source;
    RankRange covers;
    bool partial = false;
    std::size_t element_bytes = 0;
  };

  void set_copy(const Origin& from, const Target& to);
  /// A reduction is its contributions, added one after the other, and then what is made of them.
  void clear_contributions();
  void add(const Contribution& contribution);
  /// Of at most `count` elements, fewer if what is fetched of other processes would not stay in the
  /// cache. Returns how many.
  std::size_t set_reduction(const Arithmetic& arithmetic, std::byte* to, std::size_t count);

  void run() noexcept override;
  /// Set, and not run yet.
  bool waits() const { return state_ == State::set; }
  /// Run, and not collected yet.
  bool is_over() const { return state_ == State::over; }
  /// Throws Unmapped, and what a user's operation threw.
  void collect();
  void drop() { state_ = State::none; }

 private:
  enum class State { none, set, over };
  /// A term that lies in another process.
  struct Fetched {
    std::size_t term = 0;
    Origin source;
    std::size_t element_bytes = 0;
  };
  void run_copy();
  void run_reduction();
  void fetch(const Origin& source, std::byte* to, std::size_t bytes) const;

  const comm::Context& context_;
  State state_ = State::none;
  std::exception_ptr error_;
  bool reduces_ = false;
  Origin from_;
  Target to_;
  Arithmetic arithmetic_;
  std::size_t count_ = 0;
  std::vector<Term> terms_;
  std::vector<Fetched> fetched_;
  std::vector<std::byte> room_;  ///< For what is fetched of other processes,
  std::size_t room_each_ = 0;    ///< so many bytes for each.
};

}  // namespace sprat::collectives
