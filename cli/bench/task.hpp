// What `sprat bench` can run: each collective's shape, data, call and expected result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cli/bench/call.hpp"
#include "cli/bench/pattern.hpp"
#include "sprat/communicator.hpp"

namespace sprat::cli {

/// One row of the table, before it is run.
struct Task {
  BenchCall call = all_bench_calls().front();
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  bool in_place = false;
  /// Elements as nccl-tests counts them: of a block where ranks pass several equal ones, else of
  /// the larger of input and output.
  std::size_t count = 0;
  int root = 0;  ///< Of the first call; each one after has the next rank.
};
/// The count whose bytes() come nearest to `bytes` from below.
std::size_t count_for(const BenchCall& call, DType dtype, int ranks, std::size_t bytes) noexcept;
/// The larger of input and output of one rank; where only a root passes several blocks, the root's.
std::size_t bytes(const Task& task, int ranks) noexcept;
/// Elements of each rank's block. Uneven ones are as 1 : 2 : 0 : 1 : 2 : 0 ..., rounded.
std::vector<std::size_t> block_counts(const Task& task, int ranks);

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

/// The data of a call, dtype and op for one rank: what goes in and what results are made of.
struct Oracle {
  Oracle(const BenchCall& call, DType dtype, ReduceOp op, int ranks, int rank);
  Pattern input;
  std::vector<Pattern> results;  ///< The reduction, or where nothing is reduced each rank's input.
};

/// A task on this rank's buffers.
class Run {
 public:
  Run(Communicator& world, const Task& task, const Oracle& oracle, Buffers& buffers);
  /// Writes the input, poisons the output, sets the guards.
  void prepare();
  /// The call, once, to its end. Buffers that only the root's call has are null elsewhere.
  void operator()();
  /// Elements of the output, and of an input that was not to change, that are wrong on this rank,
  /// and guard bytes overwritten. An output that only roots get counts once this rank was root.
  std::uint64_t wrong() const;

 private:
  void issue(ConstElements in, Elements out, int root);
  int root_of(std::uint64_t call) const;
  bool has_result() const;

  Communicator& world_;
  const Task task_;
  const Oracle& oracle_;
  Buffers& buffers_;
  std::vector<std::size_t> in_blocks_, out_blocks_;  ///< Elements.
  std::size_t in_count_, out_count_;
  std::byte* in_;
  std::byte* out_;
  std::uint64_t calls_ = 0;  ///< Since prepare().
};

}  // namespace sprat::cli
