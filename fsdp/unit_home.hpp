// Where a unit lives on one rank: what it is cut into, and what it shares with the other units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fsdp/axis_communicator.hpp"
#include "fsdp/encoded_sum.hpp"
#include "fsdp/plan/layout.hpp"
#include "fsdp/plan/placement.hpp"
#include "io/tier.hpp"
#include "memory/arena.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// Over which ranks units lie, and how: a row of the table and the communicators of its axes.
struct Spread {
  Sharding sharding;
  AxisCommunicator*
      axis_communicators[2];  ///< By Axis; null for an axis of one rank that nothing is sent along.
  DType gradient_wire = DType::f32;
  EncodedSums* encoded_sums = nullptr;  ///< If that wire has block scales: those of the last hop.
};

/// What units of one spread share; everything outlives them.
struct UnitHome {
  Spread spread;
  int rank = 0;   ///< Of the mesh.
  int units = 0;  ///< As many have buffers in the arenas.
  const FsdpOptions& options;
  int states = 0;  ///< Arrays of the optimizer's state.
  memory::Arena* parameter_slots;
  memory::Arena* gradient_slots;
  memory::Arena* narrowed_slots;
  memory::Arena* sum_slots;
  io::Tier* state_tier;
  io::Tier* shard_tier;  ///< Null: memory that peers can map.
  Traffic& traffic;
};

/// What one rank has of a unit: a pure function of the unit, the row and the rank.
struct UnitCut {
  /// `parameter_origins` as lay_out() has it.
  UnitCut(const UnitSpec& unit, std::span<const ParameterOrigin> parameter_origins, int number,
          const Sharding& sharding, int rank);

  const UnitSpec& spec;
  std::vector<ParameterOrigin> origins;  ///< By parameter.
  int id;                                ///< Its number in the arenas.
  bool gathers_parameters, shards_gradients;
  OptimizerPart part;
  FlatLayout layout;
  ShardLayout own;    ///< What this rank updates.
  ShardLayout shard;  ///< Its shard, where anything is cut by shards.
};

/// Elements of one of so many equal parts.
inline std::size_t divided(std::size_t elements, int parts) {
  return elements / static_cast<std::size_t>(parts);
}

inline Elements floats(std::span<float> values) {
  return {.data = values.data(), .count = values.size(), .dtype = DType::f32};
}

/// `count` elements of an array from `offset` on.
inline Elements part_of(void* data, std::size_t offset, std::size_t count, DType dtype) {
  return {.data = static_cast<std::byte*>(data) + offset * size_of(dtype),
          .count = count,
          .dtype = dtype};
}

/// An array that stays between steps, in a tier or in memory that peers can map. Memory is always
/// near; a tier's arrays are brought near before use and let go of after it.
class KeptArray {
 public:
  /// A null tier is memory.
  KeptArray(std::size_t bytes, io::Tier* tier);

  std::span<std::byte> bytes() const { return bytes_; }
  std::span<float> as_floats() const {
    return {reinterpret_cast<float*>(bytes_.data()), bytes_.size() / sizeof(float)};
  }
  void fetch() const;
  void release() const;

 private:
  io::Tier* tier_;
  Memory memory_;
  std::span<std::byte> bytes_;
};

}  // namespace sprat::fsdp
