// The exact cut of chains, held against every cut there is and against GPT-2's known cuts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "sprat/error.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {
namespace {

std::vector<ModelPiece> chain_of_times(const std::vector<double>& times) {
  std::vector<ModelPiece> layers;
  for (const double time : times) {
    layers.push_back({.name = text("l", layers.size()), .time = time});
  }
  return layers;
}

std::vector<std::size_t> bounds_of(const std::vector<ChainStage>& stages) {
  std::vector<std::size_t> bounds = {0};
  for (const ChainStage& stage : stages) {
    bounds.push_back(stage.end);
  }
  return bounds;
}

double slowest_of(const std::vector<ChainStage>& stages) {
  return std::ranges::max_element(stages, {}, &ChainStage::time)->time;
}

double objective_of(const std::vector<ChainStage>& stages, const ChainRequest& request) {
  double sum = 0;
  for (const ChainStage& stage : stages) {
    sum += stage.time;
  }
  return request.objective == ChainObjective::bottleneck
             ? slowest_of(stages)
             : sum + (request.microbatches - 1) * slowest_of(stages);
}

/// A stage's time and memory, written once more from their definitions.
ChainStage stage_by_definition(const std::vector<ModelPiece>& layers, const ChainRequest& request,
                               int stage, std::size_t begin, std::size_t end) {
  ChainStage result{.begin = begin, .end = end};
  for (std::size_t i = begin; i < end; ++i) {
    result.time += layers[i].time;
    result.memory_bytes +=
        request.state_factor * layers[i].parameter_bytes +
        std::min(request.stages - stage, request.microbatches) * layers[i].activation_bytes;
  }
  const double received = begin > 0 ? layers[begin - 1].output_bytes : 0;
  const double sent = end < layers.size() ? layers[end - 1].output_bytes : 0;
  result.time += (received + sent) * request.seconds_per_byte;
  return result;
}

/// The least objective of all cuts from `begin` on; infinite if none fits.
double least_of_all_cuts(const std::vector<ModelPiece>& layers, const ChainRequest& request,
                         std::vector<ChainStage>& stages) {
  const int stage = static_cast<int>(stages.size());
  const std::size_t begin = stages.empty() ? 0 : stages.back().end;
  if (stage == request.stages) {
    return begin == layers.size() ? objective_of(stages, request)
                                  : std::numeric_limits<double>::infinity();
  }
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t end = begin + 1; end <= layers.size(); ++end) {
    stages.push_back(stage_by_definition(layers, request, stage, begin, end));
    const std::size_t which = request.capacity_bytes.size() == 1 ? 0 : std::size_t(stage);
    if (stages.back().memory_bytes <= request.capacity_bytes[which]) {
      least = std::min(least, least_of_all_cuts(layers, request, stages));
    }
    stages.pop_back();
  }
  return least;
}

/// Whole numbers, so that sums are exact in any order.
struct RandomChain {
  std::vector<ModelPiece> layers;
  ChainRequest request;
};
RandomChain random_chain(unsigned seed) {
  std::mt19937 random(seed);
  const auto from_to = [&](unsigned low, unsigned high) {
    return low + random() % (high - low + 1);
  };
  RandomChain chain;
  const unsigned count = from_to(1, 10);
  for (unsigned i = 0; i < count; ++i) {
    chain.layers.push_back({.name = text("l", i),
                            .time = from_to(0, 20) + 0.0,
                            .parameter_bytes = from_to(0, 9) + 0.0,
                            .activation_bytes = from_to(0, 9) + 0.0,
                            .output_bytes = from_to(0, 9) + 0.0,
                            .shared = {}});
  }
  chain.request = {.stages = static_cast<int>(from_to(1, std::min(count, 5u))),
                   .microbatches = static_cast<int>(from_to(1, 6)),
                   .objective = ChainObjective::bottleneck,
                   .seconds_per_byte = from_to(0, 2) + 0.0,
                   .state_factor = 4,
                   .capacity_bytes = {}};
  const int capacities = from_to(0, 1) == 0 ? 1 : chain.request.stages;
  for (int i = 0; i < capacities; ++i) {
    chain.request.capacity_bytes.push_back(from_to(40, 300));
  }
  return chain;
}

TEST(ChainCut, is_the_best_of_all_cuts_of_500_random_chains) {
  int fit = 0, short_of_memory = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomChain chain = random_chain(seed);
    for (const auto objective : {ChainObjective::bottleneck, ChainObjective::pipeline_time}) {
      chain.request.objective = objective;
      std::vector<ChainStage> none;
      const double best = least_of_all_cuts(chain.layers, chain.request, none);
      double found = std::numeric_limits<double>::infinity();
      try {
        found = objective_of(cut_chain(chain.layers, chain.request), chain.request);
        ++fit;
      } catch (const Error&) {
        ++short_of_memory;
      }
      EXPECT_EQ(found, best) << "chain " << seed;
    }
  }
  EXPECT_GT(fit, 300);
  EXPECT_GT(short_of_memory, 100);
}

TEST(ChainCut, tells_of_each_stage_what_the_definitions_say) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomChain chain = random_chain(seed);
    chain.request.capacity_bytes.clear();
    int index = 0;
    for (const ChainStage& stage : cut_chain(chain.layers, chain.request)) {
      const ChainStage expected =
          stage_by_definition(chain.layers, chain.request, index++, stage.begin, stage.end);
      EXPECT_EQ(stage.time, expected.time) << "chain " << seed;
      EXPECT_EQ(stage.memory_bytes, expected.memory_bytes) << "chain " << seed;
    }
  }
}

/// The refusal's number is the least capacity: with it a cut is found, with less none is.
TEST(ChainCut, the_least_memory_that_it_names_is_the_least_that_works) {
  int refused = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomChain chain = random_chain(seed);
    chain.request.capacity_bytes = {1};
    try {
      cut_chain(chain.layers, chain.request);
    } catch (const Error& error) {
      ++refused;
      const std::string what = error.what();
      const std::string before = "the least that works is ";
      chain.request.capacity_bytes = {std::stod(what.substr(what.find(before) + before.size()))};
      EXPECT_NO_THROW(cut_chain(chain.layers, chain.request)) << "chain " << seed;
      chain.request.capacity_bytes[0] -= 1;
      EXPECT_THROW(cut_chain(chain.layers, chain.request), Error) << "chain " << seed;
    }
  }
  EXPECT_GT(refused, 400);
}

std::string complaint_of(const std::vector<ModelPiece>& layers, const ChainRequest& request) {
  try {
    cut_chain(layers, request);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

// Two stages, two micro-batches: stage 0 keeps two sets of activations. Cut after l0: 2 * 30 = 60
// and 10 + 20 = 30; after l1: 2 * 40 = 80 and 20. The first lacks less, 10.
TEST(ChainCut, what_does_not_fit_is_named) {
  std::vector<ModelPiece> layers = chain_of_times({1, 1, 1});
  layers[0].activation_bytes = 30;
  layers[1].activation_bytes = 10;
  layers[2].activation_bytes = 20;
  EXPECT_EQ(complaint_of(layers, {.stages = 2, .microbatches = 2, .capacity_bytes = {50}}),
            "no cut in 2 stages fits: in the nearest, stage 0 (layers 0 to 0, \"l0\" to \"l0\") "
            "needs 60 bytes and may have 50; the least that works is 60 bytes a stage");
  EXPECT_EQ(complaint_of(layers, {.stages = 2, .microbatches = 2, .capacity_bytes = {50, 25}}),
            "no cut in 2 stages fits: in the nearest, stage 0 (layers 0 to 0, \"l0\" to \"l0\") "
            "needs 60 bytes and may have 50; the least that works is 10 bytes more for each stage");
}

TEST(ChainCut, impossible_requests_say_what_works) {
  const std::vector<ModelPiece> layers = chain_of_times({1, 1, 1});
  EXPECT_EQ(complaint_of(layers, {.stages = 4}), "a chain of 3 layers has 1 to 3 stages, not 4");
  EXPECT_EQ(complaint_of(layers, {.stages = 0}), "a chain of 3 layers has 1 to 3 stages, not 0");
  EXPECT_EQ(complaint_of(layers, {.stages = 2, .microbatches = 0}),
            "a step has at least 1 micro-batch, not 0");
  EXPECT_EQ(complaint_of(layers, {.stages = 3, .capacity_bytes = {1, 2}}),
            "capacities of 2 stages are given for 3; give one, or one for each stage");
}

TEST(ChainCut, refuses_numbers_that_are_not_finite) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {nan, infinity, -infinity, -1.0, 1e300}) {
    const std::string told = text(" is ", wrong, ", not from 0 to 1e+100");
    for (const auto& [what, member] : {std::pair{"time", &ModelPiece::time},
                                       std::pair{"parameter_bytes", &ModelPiece::parameter_bytes},
                                       std::pair{"activation_bytes", &ModelPiece::activation_bytes},
                                       std::pair{"output_bytes", &ModelPiece::output_bytes}}) {
      std::vector<ModelPiece> layers = chain_of_times({1, 1, 1});
      layers[1].*member = wrong;
      EXPECT_EQ(complaint_of(layers, {.stages = 2, .capacity_bytes = {10}}),
                text(what, " of layer \"l1\"", told));
    }
    std::vector<ModelPiece> layers = chain_of_times({1, 1, 1});
    EXPECT_EQ(complaint_of(layers, {.stages = 2, .seconds_per_byte = wrong}),
              "seconds_per_byte" + told);
    EXPECT_EQ(complaint_of(layers, {.stages = 2, .state_factor = wrong}), "state_factor" + told);
    layers[2].shared = {{.name = "w", .bytes = wrong}};
    EXPECT_EQ(complaint_of(layers, {.stages = 2, .capacity_bytes = {10}}),
              "w of layer \"l2\"" + told);
  }
  EXPECT_EQ(complaint_of(chain_of_times({1, 1}), {.stages = 2, .capacity_bytes = {10, nan}}),
            "capacity 1 is nan, no number of bytes");
}

TEST(ChainCut, takes_the_largest_numbers_and_stages_without_a_limit) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<ModelPiece> layers = chain_of_times({1e100, 1e100, 1e100});
  for (ModelPiece& layer : layers) {
    layer.parameter_bytes = layer.activation_bytes = layer.output_bytes = 1e100;
  }
  const ChainRequest request{.stages = 2,
                             .microbatches = 4,
                             .objective = ChainObjective::pipeline_time,
                             .seconds_per_byte = 1e100,
                             .state_factor = 1e100,
                             .capacity_bytes = {infinity, infinity}};
  EXPECT_EQ(cut_chain(layers, request).size(), 2u);
  const std::string complaint =
      complaint_of(layers, {.stages = 2, .capacity_bytes = {infinity, 1}});
  EXPECT_EQ(complaint.find("no cut in 2 stages fits"), 0u) << complaint;
}

// Stage 0 keeps two sets, so it has the shorter half although times are equal.
TEST(ChainCut, early_stages_hold_less_where_memory_is_short) {
  std::vector<ModelPiece> layers = chain_of_times({1, 1, 1, 1, 1, 1});
  for (ModelPiece& layer : layers) {
    layer.activation_bytes = 10;
  }
  const ChainRequest request{.stages = 2, .microbatches = 4, .capacity_bytes = {40}};
  EXPECT_EQ(bounds_of(cut_chain(layers, request)), (std::vector<std::size_t>{0, 2, 6}));
}

// Both ends use w: apart, each holds its 100 bytes; a stage with both holds them once.
TEST(ChainCut, each_stage_holds_what_it_shares_once) {
  std::vector<ModelPiece> layers = chain_of_times({1, 1});
  layers[0].shared = layers[1].shared = {{.name = "w", .bytes = 100}};
  const ChainRequest one{.stages = 1, .state_factor = 1}, two{.stages = 2, .state_factor = 1};
  EXPECT_EQ(cut_chain(layers, one)[0].memory_bytes, 100);
  EXPECT_EQ(cut_chain(layers, two)[0].memory_bytes, 100);
  EXPECT_EQ(cut_chain(layers, two)[1].memory_bytes, 100);
}

// DeepSpeed's partition_balanced has 25 here.
TEST(ChainCut, finds_21_where_a_known_heuristic_has_25) {
  EXPECT_EQ(slowest_of(cut_chain(chain_of_times({8, 3, 3, 7, 20, 5}), {.stages = 3})), 21);
}

/// GPT-2 124M: an embedding, 12 blocks, the last norm with the head.
struct KnownCut {
  std::vector<double> times;
  int stages;
  std::vector<std::size_t> bounds;
  double slowest;
};

std::vector<double> gpt2_chain(double embedding, double block, double last) {
  std::vector<double> times(14, block);
  times.front() = embedding;
  times.back() = last;
  return times;
}

TEST(ChainCut, cuts_gpt2_as_is_known) {
  constexpr double width = 768, length = 1024, vocabulary = 50257;
  const std::vector<double> parameters =
      gpt2_chain((vocabulary + length) * width, 12 * width * width + 13 * width, 2 * width);
  const double block = 24 * width * width + 4 * length * width, head = 2 * vocabulary * width;
  const std::vector<double> flops = gpt2_chain(0, block, head);
  for (const KnownCut& known : {
           KnownCut{parameters, 2, {0, 4, 14}, 63'792'384},
           KnownCut{parameters, 4, {0, 1, 3, 8, 14}, 39'383'808},
           KnownCut{flops, 2, {0, 9, 14}, 4 * block + head},
           KnownCut{flops, 4, {0, 5, 9, 13, 14}, head},
       }) {
    const auto stages = cut_chain(chain_of_times(known.times), {.stages = known.stages});
    EXPECT_EQ(bounds_of(stages), known.bounds);
    EXPECT_EQ(slowest_of(stages), known.slowest);
  }
}

// The figures of the literature, to their three decimals.
TEST(ChainCut, gpt2s_head_limits_the_balance_of_flops) {
  const double block = 24.0 * 768 * 768 + 4.0 * 1024 * 768, head = 2.0 * 50257 * 768;
  const auto layers = chain_of_times(gpt2_chain(0, block, head));
  const auto ratio = [&](int stages) {
    const double slowest = slowest_of(cut_chain(layers, {.stages = stages}));
    return std::round(1000 * slowest / ((12 * block + head) / stages));
  };
  EXPECT_EQ(ratio(2), 1028);
  EXPECT_EQ(ratio(4), 1084);
  EXPECT_EQ(ratio(6), 1626);
}

TEST(ChainCut, forty_eight_layers_in_eight_stages_are_proven_at_once) {
  std::mt19937 random(7);
  std::vector<ModelPiece> layers = chain_of_times(std::vector<double>(48));
  for (ModelPiece& layer : layers) {
    layer.time = 100 + random() % 100;
    layer.output_bytes = random() % 300;
    layer.activation_bytes = random() % 100;
  }
  const auto begin = std::chrono::steady_clock::now();
  cut_chain(layers, {.stages = 8,
                     .microbatches = 2,
                     .objective = ChainObjective::pipeline_time,
                     .seconds_per_byte = 1,
                     .capacity_bytes = {5000}});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 1.0);
}

}  // namespace
}  // namespace sprat::mp
