#include "plugins/torch/native/planners.hpp"

#include <pybind11/stl.h>

#include "plugins/torch/native/errors.hpp"
#include "sprat/partition.hpp"
#include "sprat/pipeline.hpp"

namespace py = pybind11;

namespace sprat::pytorch {

py::dict partition(const std::string& model_json, const std::string& method, int partitions,
                   const std::string& goal, double memory_weight, bool any_order) {
  if (goal != "memory" && goal != "speed") {
    throw py::value_error("goal \"" + goal + "\" is neither \"memory\" nor \"speed\"");
  }
  const std::vector<mp::PlacedPiece> placed = guard([&] {
    return mp::partition_model({.model = model_json,
                                .method = method,
                                .partitions = partitions,
                                .speed = goal == "speed",
                                .memory_weight = memory_weight,
                                .any_order = any_order});
  });
  py::list names, numbers;
  for (const mp::PlacedPiece& piece : placed) {
    names.append(piece.name);
    numbers.append(piece.partition);
  }
  return py::dict(py::arg("names") = names, py::arg("partition") = numbers);
}

py::dict make_schedule(const std::string& kind, int ranks, int microbatches, int stages_per_rank,
                       int active_microbatches, const std::vector<bool>& recomputed,
                       int unsharded_stages, bool reduces) {
  const mp::Schedule schedule = guard([&] {
    return mp::make_schedule({.kind = kind,
                              .shape = {.ranks = ranks,
                                        .microbatches = microbatches,
                                        .stages_per_rank = stages_per_rank,
                                        .active_microbatches = active_microbatches},
                              .recomputed = recomputed,
                              .unsharded_stages = unsharded_stages,
                              .reduces = reduces});
  });
  py::list actions;
  for (const std::vector<mp::Action>& of_rank : schedule.actions) {
    py::list texts;
    for (const mp::Action& action : of_rank) {
      texts.append(mp::to_text(action));
    }
    actions.append(texts);
  }
  return py::dict(py::arg("name") = schedule.name, py::arg("microbatches") = schedule.microbatches,
                  py::arg("rank_of_stage") = py::cast(schedule.rank_of_stage),
                  py::arg("actions") = actions);
}

}  // namespace sprat::pytorch
