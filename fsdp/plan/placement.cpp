// The placement table: one row a strategy; everything else is read from the row.
#include "fsdp/plan/placement.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "comm/base/check.hpp"
#include "fsdp/plan/encoded_parts.hpp"
#include "sprat/wire.hpp"

namespace sprat {
namespace {

constexpr Placement replicated = Placement::replicated;
constexpr Placement flat = Placement::flat;
constexpr Placement partial = Placement::partial;

// Gradients are as a micro-step leaves them: partial along an axis means that axis still has to
// sum them, flat that its reduce-scatter has.
constexpr std::array strategies{
    Strategy{"ddp", {replicated, replicated}, {partial, partial}, {replicated, replicated}},
    Strategy{"zero1", {replicated, replicated}, {partial, partial}, {replicated, flat}},
    Strategy{"zero2", {replicated, replicated}, {partial, flat}, {replicated, flat}},
    Strategy{"zero3", {replicated, flat}, {partial, flat}, {replicated, flat}},
    Strategy{"hsdp", {replicated, flat}, {partial, flat}, {replicated, flat}},
    Strategy{"hfsdp", {replicated, flat}, {partial, flat}, {flat, flat}},
};

const Strategy& strategy_named(const std::string& name) {
  std::string known;
  for (const Strategy& strategy : strategies) {
    if (name == strategy.name) {
      return strategy;
    }
    known += text(known.empty() ? "" : ", ", strategy.name);
  }
  throw Error(ErrorCode::invalid_argument,
              text("there is no strategy \"", name, "\"; there are: ", known));
}

const Strategy& strategy_by_degree(int ranks, int degree) {
  return strategy_named(degree == 1 ? "ddp" : degree == ranks ? "zero3" : "hsdp");
}

}  // namespace

std::span<const Strategy> all_strategies() noexcept { return strategies; }

Communicator order_by_host(Communicator& world) {
  const std::vector<int> order = fsdp::host_order(world.hosts());
  return std::move(
      *world.split(0, order[static_cast<std::size_t>(world.rank())], "by host", Failing::together));
}

namespace fsdp {
namespace {

/// The one degree that a strategy is defined for; hybrid ones leave the choice.
std::optional<int> only_degree(const Strategy& strategy, int ranks) {
  const std::string name = strategy.name;
  if (name == "hsdp" || name == "hfsdp") {
    return std::nullopt;
  }
  return name == "ddp" ? 1 : ranks;
}

bool is_flat(const Placement (&placements)[2], Axis axis) { return placements[axis] == flat; }

}  // namespace

std::vector<int> allowed_degrees(int ranks) {
  std::vector<int> degrees;
  for (int degree = 1; degree <= ranks; ++degree) {
    if (ranks % degree == 0) {
      degrees.push_back(degree);
    }
  }
  return degrees;
}

Sharding choose_sharding(int ranks, const std::string& strategy, int degree) {
  if (degree < 0 || (degree > 0 && ranks % degree != 0)) {
    std::string allowed = "0";
    for (const int one : allowed_degrees(ranks)) {
      allowed += text(", ", one);
    }
    require(false, "hybrid_shard_degree ", degree, " does not divide the ", ranks,
            " ranks of the world; allowed: ", allowed, " (0: as many as the strategy takes)");
  }
  if (strategy.empty()) {
    const int shards = degree == 0 ? ranks : degree;
    return {&strategy_by_degree(ranks, shards), ranks / shards, shards};
  }
  const Strategy& row = strategy_named(strategy);
  const std::optional<int> only = only_degree(row, ranks);
  require(!only || degree == 0 || degree == *only, "strategy \"", strategy,
          "\" has a hybrid_shard_degree of ", only.value_or(0), " on ", ranks, " ranks, not ",
          degree, "; leave it 0, or choose hsdp or hfsdp");
  const int shards = only.value_or(degree == 0 ? ranks : degree);
  return {&row, ranks / shards, shards};
}

Sharding replicated_sharding(int ranks) { return {&strategy_named("ddp"), ranks, 1}; }

bool gathers_parameters(const Sharding& sharding) {
  return sharding.shards > 1 && is_flat(sharding.strategy->parameters, shard_axis);
}

bool shards_gradients(const Sharding& sharding) {
  return sharding.shards > 1 && is_flat(sharding.strategy->gradients, shard_axis);
}

std::vector<Hop> reduction_hops(const Sharding& sharding, DType wire) {
  std::vector<Hop> hops;
  for (const Axis axis : {shard_axis, replica_axis}) {
    if (sharding.size(axis) > 1) {
      hops.push_back({axis, is_flat(sharding.strategy->optimizer, axis)});
    }
  }
  if (!hops.empty()) {
    (has_block_scales(wire) ? hops.back() : hops.front()).wire = wire;
  }
  return hops;
}

EncodedHop encoded_hop(const Sharding& sharding, DType wire, std::size_t padded) {
  const std::vector<Hop> hops = reduction_hops(sharding, wire);
  if (hops.empty() || !has_block_scales(wire)) {
    return {};
  }
  // A sum over replicas is of what the sum over shards has left.
  const std::size_t count =
      hops.size() > 1 ? padded / static_cast<std::size_t>(sharding.shards) : padded;
  const EncodedParts parts(count, sharding.size(hops.back().axis));
  return {.staging_bytes = parts.exchange_bytes(),
          .sent = count,
          .returned = hops.back().scatters ? 0 : parts.most()};
}

std::vector<Axis> refresh_axes(const Sharding& sharding) {
  std::vector<Axis> axes;
  for (const Axis axis : {replica_axis, shard_axis}) {
    if (sharding.size(axis) > 1 && is_flat(sharding.strategy->optimizer, axis) &&
        !is_flat(sharding.strategy->parameters, axis)) {
      axes.push_back(axis);
    }
  }
  return axes;
}

std::optional<Axis> encoded_parameter_axis(const Sharding& sharding) {
  const std::vector<Axis> refreshed = refresh_axes(sharding);
  if (!refreshed.empty()) {
    return refreshed.front();
  }
  return gathers_parameters(sharding) ? std::optional(shard_axis) : std::nullopt;
}

bool keeps_masters(const Sharding& sharding, DType parameters, std::optional<DType> wire) {
  // What is gathered for use alone lies in a slot, and what is updated stays as it is.
  return parameters != DType::f32 || (wire && !refresh_axes(sharding).empty());
}

OptimizerPart optimizer_part(const Sharding& sharding, int rank) {
  const int coordinates[2] = {rank / sharding.shards, rank % sharding.shards};
  OptimizerPart part;
  // The shard axis cuts first, so that a shard's parts over replicas are next to each other.
  for (const Axis axis : {shard_axis, replica_axis}) {
    const int size = sharding.size(axis);
    if (is_flat(sharding.strategy->optimizer, axis)) {
      part.part = part.part * size + coordinates[axis];
      part.parts *= size;
    } else {
      part.copy = part.copy * size + coordinates[axis];
      part.copies *= size;
    }
  }
  return part;
}

KeptBytes kept_bytes(const Sharding& sharding, std::size_t padded, DType parameters, int states,
                     std::optional<DType> parameter_wire) {
  const auto shards = static_cast<std::size_t>(sharding.shards);
  const std::size_t own = padded / static_cast<std::size_t>(optimizer_part(sharding, 0).parts);
  const std::size_t masters = keeps_masters(sharding, parameters, parameter_wire) ? 1 : 0;
  return {.parameters = padded / (gathers_parameters(sharding) ? shards : 1) * size_of(parameters),
          .gradients = padded / (shards_gradients(sharding) ? shards : 1) * sizeof(float),
          .optimizer = own * sizeof(float) * (masters + static_cast<std::size_t>(states))};
}

std::vector<int> host_order(const std::vector<int>& hosts) {
  std::vector<int> first(hosts.size());  // of a rank's host: its first rank
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto found = std::find(hosts.begin(), hosts.end(), hosts[rank]);
    first[rank] = static_cast<int>(found - hosts.begin());
  }
  std::vector<int> ranks(hosts.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return first[static_cast<std::size_t>(a)] < first[static_cast<std::size_t>(b)];
  });
  std::vector<int> order(hosts.size());
  for (std::size_t position = 0; position < ranks.size(); ++position) {
    order[static_cast<std::size_t>(ranks[position])] = static_cast<int>(position);
  }
  return order;
}

}  // namespace fsdp
}  // namespace sprat
