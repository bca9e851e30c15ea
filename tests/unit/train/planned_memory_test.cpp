// What is counted of a rank's memory before the first step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "train/data/text_data.hpp"
#include "train/model/parameters.hpp"
#include "train/model_part.hpp"
#include "train/model_passes.hpp"
#include "train/rank_memory.hpp"

namespace sprat::train {
namespace {

TrainConfig config_with(const std::string& parameters) {
  return parse_train_config(
      R"({"model": {"layers": 2, "width": 16, "heads": 2, "context": 8}, "data": {"files": ["a"]},
          "train": {"batch": 4, "precision": {"parameters": ")" +
          parameters + R"("}}})",
      "test.json");
}

/// Of this rank, with all elements of the largest of its units.
struct Planned {
  RankMemory memory;
  MemoryPlan of_model;
  std::size_t largest_unit = 0;
};

Planned planned(Communicator& world, const TrainConfig& config) {
  ModelPart part(world, config);
  const ModelPasses passes(part, config, open_gemm_backend("reference"), 4);
  Planned result{.memory = passes.memory(), .of_model = part.model().memory_plan()};
  for (const UnitSpec& unit : part.units()) {
    std::size_t elements = 0;
    for (const ParameterSpec& parameter : unit.parameters) {
      elements += element_count(parameter);
    }
    result.largest_unit = std::max(result.largest_unit, elements);
  }
  return result;
}

TEST(PlannedMemory, has_the_f32_copies_of_narrow_parameters) {
  run_virtual_ranks(1, Config{}, [](Communicator& world) {
    const Planned wide = planned(world, config_with("f32"));
    EXPECT_EQ(wide.memory.parameters, wide.of_model.parameter_slots);
    // While a unit is used all of it is there as f32, beside what was gathered.
    const Planned narrow = planned(world, config_with("bf16"));
    EXPECT_GE(narrow.memory.parameters,
              narrow.of_model.parameter_slots + narrow.largest_unit * sizeof(float));
  });
}

TEST(PlannedMemory, has_the_text_that_every_rank_has_whole) {
  const TrainConfig config = config_with("f32");
  const TextData bytes(Batches(TokenizedText(std::vector<std::uint8_t>(5000, 'a')), config), {});
  RankMemory memory{.text = 7};
  bytes.count_memory(memory);
  EXPECT_EQ(memory.text, 5007u) << "a byte is a token, and takes one";
  EXPECT_EQ(memory.total(), 5007u);
}

}  // namespace
}  // namespace sprat::train
