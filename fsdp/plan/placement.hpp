// The placement table: which strategy is meant, what a rank keeps under it, and which collectives
// its placements ask for.
#pragma once

#include <cstddef>
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
};
/// Sums that make a full gradient into the one a rank updates with, in turn.
std::vector<Hop> reduction_hops(const Sharding& sharding);
/// Axes along which updated parameters are gathered into what a rank keeps, in turn.
std::vector<Axis> refresh_axes(const Sharding& sharding);

/// What a rank updates: part `part` of `parts` equal ones of a unit's flat buffer. So do the other
/// `copies` ranks.
struct OptimizerPart {
  int parts = 1, part = 0;
  int copies = 1, copy = 0;
};
OptimizerPart optimizer_part(const Sharding& sharding, int rank);

/// Bytes a rank keeps between steps. Parameters are of `parameter_bytes` each; narrower than f32
/// they have f32 masters, which count as optimizer state, as do `states` arrays of f32.
struct KeptBytes {
  std::size_t parameters = 0, gradients = 0, optimizer = 0;
  std::size_t total() const { return parameters + gradients + optimizer; }
};
KeptBytes kept_bytes(const Sharding& sharding, std::size_t padded, std::size_t parameter_bytes,
                     int states);

/// Positions of the ranks with those of one host next to each other; hosts[r] is rank r's.
std::vector<int> host_order(const std::vector<int>& hosts);

}  // namespace sprat::fsdp
