// mp's planners for Python: where a model is cut, and in which order a pipeline computes.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace sprat::pytorch {

/// {"names": [...], "partition": [...]}, in execution order. `goal` is SMP's optimize.
pybind11::dict partition(const std::string& model_json, const std::string& method, int partitions,
                         const std::string& goal, double memory_weight, bool any_order);

/// {"name", "microbatches", "rank_of_stage", "actions"}: by rank, each action in
/// torch.distributed.pipelining's letters. Without messages.
pybind11::dict make_schedule(const std::string& kind, int ranks, int microbatches,
                             int stages_per_rank, int active_microbatches,
                             const std::vector<bool>& recomputed, int unsharded_stages,
                             bool reduces);

}  // namespace sprat::pytorch
