// The calls that `sprat bench` measures, and what tells them apart.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/plan/problem.hpp"

namespace sprat::cli {

using collectives::Collective;

/// What a rank passes: one block or one for each rank.
enum class Shape : std::uint8_t {
  whole,      ///< One block in, one out, all alike.
  gathers,    ///< Its block in, every rank's out.
  scatters,   ///< Every rank's block in, its own out.
  exchanges,  ///< A block for each rank in, one from each out.
};

/// A collective, with equal blocks or with blocks that differ in length; or messages.
struct BenchCall {
  const char* name;  ///< Of the communicator's function.
  /// Whose algorithms carry it out; none: every rank sends to the next and receives from the
  /// previous.
  std::optional<Collective> collective;
  Shape shape;
  bool uneven = false;

  bool is(Collective which) const { return collective == which; }
};

std::span<const BenchCall> all_bench_calls() noexcept;
/// The call of this name, which there is.
const BenchCall& bench_call(const char* name) noexcept;

inline const char* name(const BenchCall& call) noexcept { return call.name; }
bool reduces(const BenchCall& call) noexcept;
bool has_root(const BenchCall& call) noexcept;
/// True if input and output can be one buffer.
bool can_be_in_place(const BenchCall& call) noexcept;
/// busbw = algbw * this: what one link carries of each byte, as nccl-tests defines it; where blocks
/// are uneven, as of equal ones.
double bus_factor(const BenchCall& call, int ranks) noexcept;

}  // namespace sprat::cli
