// The table of degrees: docs and help show the same rows, and their formulas are what planners and
// counters say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/context.hpp"
#include "train/model/gpt_extents.hpp"
#include "train/tensor_cost.hpp"

namespace sprat::train {
namespace {

using testing::Contains;

std::string on_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) {
    line += (line.empty() ? "" : " ") + word;
  }
  return line;
}

TEST(Degrees, are_told_alike_by_docs_and_help) {
  std::ifstream file(std::filesystem::path(SPRAT_SOURCE_DIR) / "docs/mp.md");
  std::vector<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    std::erase(line, '`');
    documented.push_back(line);
  }
#define SPRAT_DEGREE(letter, key, rule, memory, sent)                                       \
  EXPECT_THAT(documented, Contains(on_one_line("| " letter " | " key ": " rule " | " memory \
                                               " | " sent " |")));
#include "train/degrees.def"
}

constexpr int blocks = 4, width = 16, context = 16, samples = 2;
constexpr int tokens = samples * context;  // n, of a micro-batch
constexpr int microbatches = 4;            // m

TrainConfig degrees_config(const std::string& parallel) {
  return parse_train_config(
      R"({"model": {"layers": 4, "width": 16, "heads": 4, "context": 16},
      "data": {"files": ["a"]}, "train": {"batch": 32}, "parallel": {"microbatches": 4)" +
          parallel + "}}",
      "test.json");
}

std::size_t elements_at(const TrainConfig& config, const PipelinePlan& plan,
                        const ParallelCoordinate& place) {
  std::size_t elements = 0;
  for (const UnitSpec& unit : gpt_units(config.model, 1, placement_of(config, plan, place))) {
    for (const ParameterSpec& parameter : unit.parameters) {
      elements +=
          unit.tied_to < 0 ? static_cast<std::size_t>(element_count(held_box(parameter))) : 0;
    }
  }
  return elements;
}

TEST(Degrees, tensor_ranks_have_their_share_and_send_so_many_all_reduces) {
  const TrainConfig whole = degrees_config("");
  const std::size_t all = elements_at(whole, plan_pipeline(whole, 1), {});
  // Two norms and two biases behind sums a block, positions and the last norm.
  const std::size_t alike = blocks * 6 * width + context * width + 2 * width;
  for (const int degree : {2, 4}) {
    const std::string key = R"(, "tensor_parallel_degree": )" + std::to_string(degree);
    const double a = 8.0 * (degree - 1) / degree * tokens * width;
    for (const auto& [optimize, sums] : {std::pair{"speed", 4.0}, {"memory", 5.0}}) {
      const TrainConfig config = degrees_config(key + R"(, "optimize": ")" + optimize + '"');
      const PipelinePlan plan = plan_pipeline(config, degree);
      for (int rank = 0; rank < degree; ++rank) {
        EXPECT_EQ(elements_at(config, plan, {.tensor = rank}),
                  alike + (all - alike) / static_cast<std::size_t>(degree));
      }
      EXPECT_DOUBLE_EQ(tensor_traffic(config, plan, 0, tokens).sent(degree),
                       microbatches * ((blocks + 0.5) * sums * a + 3 * a / width))
          << degree << ' ' << optimize;
    }
  }
}

TEST(Degrees, stages_send_a_micro_batch_both_ways_and_hold_as_many_as_the_schedule_says) {
  constexpr int degree = 4;
  for (const char* schedule : {"1f1b", "gpipe"}) {
    const TrainConfig config = degrees_config(R"(, "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 4, "pipeline": ")" +
                                              std::string(schedule) + '"');
    const PipelinePlan plan = plan_pipeline(config, 2 * degree);
    for (int place = 0; place < degree; ++place) {
      const GptPlacement here = placement_of(config, plan, {.pipeline = place});
      const GptExtents extents = extents_of(config.model, here, tokens);
      std::size_t sent = 0;
      int held = 0, most = 0;
      for (const mp::Action& action : computations_of(plan.schedule, place)) {
        const bool forward = action.op == mp::Op::forward;
        const bool is_end = action.stage == (forward ? degree - 1 : 0);
        sent += is_end ? 0 : sizeof(float) * static_cast<std::size_t>(extents.own_rows * width);
        most = std::max(most, held += forward ? 1 : -1);
      }
      const std::size_t neighbours = place == 0 || place == degree - 1 ? 1 : 2;
      EXPECT_EQ(sent, neighbours * microbatches * 4 * tokens * width / 2);
      EXPECT_EQ(most, *schedule == 'g' ? microbatches : degree - place) << schedule << place;
    }
  }
}

TEST(Degrees, stages_are_at_most_as_many_as_layers) {
  const auto plan = [](int ranks) {
    return plan_pipeline(
        degrees_config(R"(, "pipeline_parallel_degree": )" + std::to_string(ranks)), ranks);
  };
  EXPECT_EQ(plan(blocks + 2).schedule.stages(), blocks + 2);
  EXPECT_THROW(plan(blocks + 3), Error);
}

/// A chain of equal units, whose parts need no padding.
TEST(Degrees, copies_are_sharded_and_summed_at_the_price_that_is_told) {
  constexpr std::size_t units = 6, unit_elements = 4 * 1024, m = 2, s = 2, r = 2;
  constexpr std::size_t elements = units * unit_elements;  // M
  std::vector<UnitSpec> chain;
  for (std::size_t unit = 0; unit < units; ++unit) {
    chain.push_back({.name = "u" + std::to_string(unit),
                     .parameters = {{.name = "w" + std::to_string(unit),
                                     .shape = {4, 1024},
                                     .decay = true,
                                     .initial = {}}}});
  }
  run_virtual_ranks(s * r, Config{}, [&](Communicator& world) {
    ShardedModel model(
        world, chain,
        {.strategy = "hsdp", .hybrid_shard_degree = s, .prefetch_units = 1, .micro_steps = m});
    EXPECT_EQ(model.memory_plan().kept, 16 * elements / s);
    EXPECT_EQ(model.memory_plan().parameter_slots, (1 + 1) * unit_elements * sizeof(float));
    for (std::size_t step = 0; step < m; ++step) {
      for (int unit = 0; unit < static_cast<int>(units); ++unit) {
        model.acquire(unit);
        model.release(unit);
      }
      for (int unit = static_cast<int>(units); unit-- > 0;) {
        model.acquire(unit);
        std::ranges::fill(model.gradient(unit, 0), 1.0f);
        model.release(unit);
        model.reduce(unit);
      }
    }
    // Two units stay full from each forward to its backward, and from there to the next forward.
    const std::size_t gathered = 2 * m * elements - 2 * (m + (m - 1)) * unit_elements;  // M'
    EXPECT_EQ(model.traffic().parameters, 4 * gathered * (s - 1) / s);
    model.step(0.1f, 1);  // which gathers for the next
    EXPECT_EQ(model.traffic().gradients,
              4 * m * elements * (s - 1) / s + 8 * (elements / s) * (r - 1) / r);
  });
}

TEST(Degrees, context_ranks_receive_on_average_what_is_told) {
  const layers::AttentionShape shape{
      .sequences = samples, .length = 4096, .heads = 4, .head_width = width / 4};
  for (const int degree : {2, 4}) {
    const double b = 4.0 * samples * 4096 * width / degree;
    for (const auto& [way, factor, held] :
         {std::tuple{"p2p", 4.5, 11}, {"all_gather", 6.0, 4 * degree}}) {
      double all = 0;
      for (int rank = 0; rank < degree; ++rank) {
        const ContextCost cost = context_cost(shape, degree, rank, {.cp_comm_type = way});
        all += static_cast<double>(cost.forward_bytes + cost.backward_bytes);
        EXPECT_EQ(static_cast<double>(cost.memory_bytes), held * b) << way;
      }
      EXPECT_EQ(all / degree, factor * (degree - 1) * b) << way << ' ' << degree;
    }
  }
}

}  // namespace
}  // namespace sprat::train
