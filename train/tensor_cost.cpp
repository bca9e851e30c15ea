#include "train/tensor_cost.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "train/data/batches.hpp"
#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

/// The embedding is like a row-parallel layer, the head like a column-parallel one; a block has two
/// of both.
tensor::Traffic layer_traffic(const TrainConfig& config, const tensor::Parallelism& how, int layer,
                              int rows) {
  const int width = config.model.width;
  const bool is_head = layer == head_layer(config.model), is_table = layer == embedding_layer;
  const int columns = is_head ? 1 : is_table ? 0 : 2, row_layers = is_table ? 1 : is_head ? 0 : 2;
  tensor::Traffic sum = is_head ? tensor::cross_entropy_traffic(how, rows) : tensor::Traffic{};
  for (int i = 0; i < columns; ++i) {
    sum += tensor::column_forward_traffic(how, rows, width);
    sum += tensor::column_backward_traffic(how, rows, width);
  }
  for (int i = 0; i < row_layers; ++i) {
    sum += tensor::row_forward_traffic(how, rows, width);
    sum += tensor::row_backward_traffic(how, rows, width);
  }
  return sum;
}

/// Token ids of a micro-batch, before and after, where each rank has read its own.
tensor::Traffic sample_traffic(const TrainConfig& config, int rows) {
  const bool alike = config.pipeline.prescaled_batch || config.pipeline.tensor_degree == 1;
  return {.gathered = alike ? 0 : 2 * sizeof(std::int32_t) * static_cast<std::uint64_t>(rows)};
}

bool reaches_over_hosts(const ParallelLayout& layout, std::span<const int> hosts) {
  const auto groups = layout.groups(Axes::tensor);
  return std::ranges::any_of(groups, [&](const std::vector<int>& ranks) {
    return std::ranges::any_of(ranks, [&](int rank) {
      return hosts[static_cast<std::size_t>(rank)] != hosts[static_cast<std::size_t>(ranks[0])];
    });
  });
}

/// What divides the number of ranks of every host: groups of so many next to each other are on one.
int common_divisor(std::span<const int> hosts) {
  int common = 0;
  for (const int host : hosts) {
    common = std::gcd(common, static_cast<int>(std::ranges::count(hosts, host)));
  }
  return common;
}

/// A degree and a placement that stay within hosts.
std::string stays_within_hosts(int degree, int common) {
  if (common % degree == 0) {
    return "take parallel.placement_strategy \"cluster\", which places the ranks of a group "
           "next to each other";
  }
  const std::string cluster = "and parallel.placement_strategy \"cluster\"";
  return common == 1 ? fmt::format("give every host a multiple of {} ranks {}", degree, cluster)
                     : fmt::format(
                           "take a degree that divides {}, of which every host's ranks "
                           "are a multiple, {}",
                           common, cluster);
}

}  // namespace

tensor::Traffic tensor_traffic(const TrainConfig& config, const PipelinePlan& plan,
                               int pipeline_rank, int rows) {
  const GptPlacement placement = placement_of(config, plan, {.pipeline = pipeline_rank});
  tensor::Traffic sum;
  for (int microbatch = 0; microbatch < config.sharding.micro_steps; ++microbatch) {
    sum += sample_traffic(config, rows);
  }
  for (const int stage : placement.stages) {
    const LayerRange range = layers_of_stage(config.model, placement, stage);
    for (int layer = range.first; layer < range.end; ++layer) {
      for (int microbatch = 0; microbatch < config.sharding.micro_steps; ++microbatch) {
        sum += layer_traffic(config, placement.tensor, layer, rows);
      }
    }
  }
  return sum;
}

std::optional<std::string> tensor_warning(const TrainConfig& config, const PipelinePlan& plan,
                                          std::span<const int> hosts) {
  const int degree = config.pipeline.tensor_degree;
  if (!reaches_over_hosts(plan.layout, hosts)) {
    return std::nullopt;
  }
  const int parts = plan.layout.data_shares() * config.sharding.micro_steps;
  const int rows = part_of_batch(config.train.batch, parts, 0).count * own_context(config);
  double most = 0;
  for (int place = 0; place < config.pipeline.degree; ++place) {
    most = std::max(most, tensor_traffic(config, plan, place, rows).sent(degree));
  }
  return fmt::format(
      "parallel.tensor_parallel_degree {} makes groups of ranks of several hosts, each of which "
      "sends {:.1f} MiB a step between its products; {}",
      degree, most / (1 << 20), stays_within_hosts(degree, common_divisor(hosts)));
}

}  // namespace sprat::train
