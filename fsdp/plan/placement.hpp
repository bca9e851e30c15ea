// The placement table: which strategy is meant, what a rank keeps under it, and which collectives
// its placements ask for.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// The mesh: rank = replica * shards + shard.
enum Axis { replica_axis = 0, shard_axis = 1 };

/// A row of the table on a mesh of `replicas` x `shards` ranks.
struct Sharding {
  const Strategy* strategy = nullptr;
  int replicas = 1, shards = 1;

  int size(Axis axis) const { return axis == replica_axis ? replicas : shards; }
  int ranks() const { return replicas * shards; }
};

/// Degrees that divide `ranks`, ascending.
std::vector<int> allowed_degrees(int ranks);
/// The row and mesh for FsdpOptions' strategy and hybrid_shard_degree. Throws
/// Error{invalid_argument} with what is allowed.
Sharding choose_sharding(int ranks, const std::string& strategy, int degree);
/// The same of all ranks, replicated everywhere: for parameters that persist.
Sharding replicated_sharding(int ranks);

/// Whether a unit's parameters are gathered along the shard axis for use.
bool gathers_parameters(const Sharding& sharding);
/// Whether each micro-step's gradient is summed into shards; else it stays full between them.
bool shards_gradients(const Sharding& sharding);

/// A sum over one axis. Scattered: each rank ends with its part of what it had, else with all.
struct Hop {
  Axis axis = shard_axis;
  bool scatters = false;
  DType wire = DType::f32;  ///< As what the gradient travels.
};
/// Sums that make a full gradient into the one a rank updates with, in turn. A `wire` of 16 bits is
/// that of the first, where every rank has one gradient of its own; one with block scales is that
/// of the last, over replicas if there are any, which is the axis between hosts.
std::vector<Hop> reduction_hops(const Sharding& sharding, DType wire = DType::f32);
/// Room that such a sum of a unit of `padded` elements needs beside the gradient, if it travels in
/// encoded blocks, and the numbers that error feedback keeps for it. Zeros if none of the hops
/// does.
struct EncodedHop {
  std::size_t staging_bytes = 0;
  std::size_t sent = 0, returned = 0;  ///< Elements of residuals.
};
EncodedHop encoded_hop(const Sharding& sharding, DType wire, std::size_t padded);
/// Axes along which updated parameters are gathered into what a rank keeps, in turn.
std::vector<Axis> refresh_axes(const Sharding& sharding);

/// The axis along which parameters travel in encoded blocks, if their wire is such: the outer one
/// of those that they are gathered along, for use or after an update. Nothing if there is none.
std::optional<Axis> encoded_parameter_axis(const Sharding& sharding);
/// Whether a rank updates parameters of f32 that it does not use, since it uses what the others
/// get: then it keeps them apart. `wire` is FsdpOptions::parameter_wire.
bool keeps_masters(const Sharding& sharding, DType parameters, std::optional<DType> wire);

/// What a rank updates: part `part` of `parts` equal ones of a unit's flat buffer. So do the other
/// `copies` ranks.
struct OptimizerPart {
  int parts = 1, part = 0;
  int copies = 1, copy = 0;
};
OptimizerPart optimizer_part(const Sharding& sharding, int rank);

/// Bytes a rank keeps between steps. Parameters are of that dtype; masters, if it keeps any, count
/// as optimizer state, as do `states` arrays of f32.
struct KeptBytes {
  std::size_t parameters = 0, gradients = 0, optimizer = 0;
  std::size_t total() const { return parameters + gradients + optimizer; }
};
KeptBytes kept_bytes(const Sharding& sharding, std::size_t padded, DType parameters, int states,
                     std::optional<DType> parameter_wire = {});

/// Positions of the ranks with those of one host next to each other; hosts[r] is rank r's.
std::vector<int> host_order(const std::vector<int>& hosts);

}  // namespace sprat::fsdp
