// The placement table: one row a strategy.
#include "fsdp/placement.hpp"

#include <array>
#include <string>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

constexpr Placement replicated = Placement::replicated;
constexpr Placement flat = Placement::flat;
constexpr Placement partial = Placement::partial;

// Gradients are as a micro-step leaves them: partial along an axis means that axis still has to
// sum them, flat that its reduce-scatter has.
constexpr std::array strategies{
    Strategy{"ddp", {replicated, replicated}, {partial, partial}, {replicated, replicated}},
    Strategy{"zero3", {replicated, flat}, {replicated, flat}, {replicated, flat}},
    Strategy{"hsdp", {replicated, flat}, {partial, flat}, {replicated, flat}},
};

}  // namespace

std::span<const Strategy> all_strategies() noexcept { return strategies; }

namespace fsdp {

std::vector<int> allowed_degrees(int ranks) {
  std::vector<int> degrees;
  for (int degree = 1; degree <= ranks; ++degree) {
    if (ranks % degree == 0) {
      degrees.push_back(degree);
    }
  }
  return degrees;
}

const Strategy& strategy_for(int ranks, int degree) {
  if (degree < 1 || ranks % degree != 0) {
    std::string allowed;
    for (const int one : allowed_degrees(ranks)) {
      allowed += text(allowed.empty() ? "" : ", ", one);
    }
    require(false, "hybrid_shard_degree ", degree, " does not divide the ", ranks,
            " ranks of the world; allowed: ", allowed);
  }
  if (degree == 1) {
    return strategies[0];
  }
  return degree == ranks ? strategies[1] : strategies[2];
}

KeptBytes kept_bytes(const Strategy& strategy, std::size_t elements, int replicas, int shards) {
  const auto kept = [&](const Placement(&placements)[2]) {
    const int parts = (placements[0] == flat ? replicas : 1) * (placements[1] == flat ? shards : 1);
    return elements / static_cast<std::size_t>(parts) * sizeof(float);
  };
  return {.parameters = kept(strategy.parameters),
          .gradients = kept(strategy.gradients),
          .optimizer = 2 * kept(strategy.optimizer)};
}

}  // namespace fsdp
}  // namespace sprat
