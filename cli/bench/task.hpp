// What `sprat bench` can run: each collective's shape, data, call and expected result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cli/bench/pattern.hpp"
#include "sprat/communicator.hpp"

namespace sprat::cli {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  sendrecv,  ///< Every rank sends to the next and receives from the previous.
};
const char* name(Collective collective) noexcept;
std::span<const Collective> all_collectives() noexcept;
bool reduces(Collective collective) noexcept;
/// True if input and output can be one buffer.
bool can_be_in_place(Collective collective) noexcept;
/// busbw = algbw * this: what one link carries of each byte, as nccl-tests defines it.
double bus_factor(Collective collective, int ranks) noexcept;

/// One row of the table, before it is run. Rank 0 is broadcast's root.
struct Task {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  bool in_place = false;
  /// Elements as nccl-tests counts them: all of all_reduce, broadcast and sendrecv, else of a
  /// block.
  std::size_t count = 0;
};
/// The count whose bytes() come nearest to `bytes` from below.
std::size_t count_for(Collective collective, DType dtype, int ranks, std::size_t bytes) noexcept;
/// The larger of input and output of one rank.
std::size_t bytes(const Task& task, int ranks) noexcept;

/// An input and an output of `bytes`, each between guard zones, reused from task to task.
class Buffers {
 public:
  enum class Kind : std::uint8_t { private_memory, shared_memory };
  static constexpr std::size_t guard_bytes = 4096;

  Buffers(Kind kind, std::size_t bytes);
  std::byte* input() noexcept { return start_[0] + guard_bytes; }
  std::byte* output() noexcept { return start_[1] + guard_bytes; }
  /// Writes the guard zones around the first `bytes` of both.
  void set_guards(std::size_t bytes);
  /// Bytes of the guard zones that have changed since.
  std::uint64_t broken_guards(std::size_t bytes) const;

 private:
  std::vector<std::byte> private_[2];
  Memory shared_[2];
  std::byte* start_[2] = {};
};

/// The data of a collective, dtype and op for one rank: what goes in and what must come out.
struct Oracle {
  Oracle(Collective collective, DType dtype, ReduceOp op, int ranks, int rank);
  Pattern input;
  std::vector<Pattern> results;  ///< One, or for all_gather and all_to_all one per source rank.
};

/// A task on this rank's buffers.
class Run {
 public:
  Run(Communicator& world, const Task& task, const Oracle& oracle, Buffers& buffers);
  /// Writes the input, poisons the output, sets the guards.
  void prepare();
  /// The collective, once, to its end.
  void operator()();
  /// Elements of the output, and of an input that was not to change, that are wrong on this rank,
  /// and guard bytes overwritten.
  std::uint64_t wrong() const;

 private:
  Communicator& world_;
  const Task task_;
  const Oracle& oracle_;
  Buffers& buffers_;
  std::size_t in_count_, out_count_;  ///< Elements.
  std::byte* in_;
  std::byte* out_;
};

}  // namespace sprat::cli
