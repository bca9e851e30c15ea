// The collectives that `sprat bench` knows, and what tells them apart.
#pragma once

#include <cstdint>
#include <span>

namespace sprat::cli {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  reduce,
  gather,
  scatter,
  all_gatherv,
  reduce_scatterv,
  gatherv,
  scatterv,
  all_to_allv,
  sendrecv,  ///< Every rank sends to the next and receives from the previous.
};

/// What a rank passes: one block or one for each rank.
enum class Shape : std::uint8_t {
  whole,      ///< One block in, one out, all alike.
  gathers,    ///< Its block in, every rank's out.
  scatters,   ///< Every rank's block in, its own out.
  exchanges,  ///< A block for each rank in, one from each out.
};

const char* name(Collective collective) noexcept;
std::span<const Collective> all_collectives() noexcept;
Shape shape_of(Collective collective) noexcept;
bool reduces(Collective collective) noexcept;
bool has_root(Collective collective) noexcept;
/// True of those whose blocks differ in length.
bool is_uneven(Collective collective) noexcept;
/// True if input and output can be one buffer.
bool can_be_in_place(Collective collective) noexcept;
/// busbw = algbw * this: what one link carries of each byte, as nccl-tests defines it; where blocks
/// are uneven, as of equal ones.
double bus_factor(Collective collective, int ranks) noexcept;

}  // namespace sprat::cli
