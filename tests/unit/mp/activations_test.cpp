// Which activations leave memory and when they come back: SMP's two horizons, what stays, views,
// and the time that a model says is waited.
#include "mp/activations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "sprat/error.hpp"
#include "tests/unit/memory/peak_bytes.hpp"

namespace sprat::mp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Forwards of all layers, then their backwards, layer by layer: each a task.
ActivationProgram layer_chain(int layers) {
  ActivationProgram program;
  for (int layer = 0; layer < layers; ++layer) {
    program.storage_bytes.push_back(100);
    program.tapes.push_back({.layer = layer, .microbatch = 0, .storages = {layer}});
    program.steps.push_back({.pass = TapePass::forward, .tape = layer, .task = layer});
  }
  for (int layer = layers; layer-- > 0;) {
    program.steps.push_back(
        {.pass = TapePass::backward, .tape = layer, .task = 2 * layers - 1 - layer});
  }
  return program;
}

/// Forwards take 1 and backwards 2, stores 1, loads `load`.
ActivationTimes even_times(const ActivationProgram& program, double load) {
  ActivationTimes times;
  for (const TapeStep& step : program.steps) {
    times.steps.push_back(step.pass == TapePass::forward ? 1 : 2);
  }
  times.stores.assign(program.storage_bytes.size(), 1);
  times.loads.assign(program.storage_bytes.size(), load);
  return times;
}

double chain_stall(const ActivationProgram& program, OffloadOptions options, double load) {
  return model_stall(program, plan_activations(program, options), even_times(program, load)).stall;
}

template <class Call>
std::string activation_refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Activations, twelve_layers_stall_as_the_closed_form_says) {
  const ActivationProgram program = layer_chain(12);
  struct Row {
    double load;
    double stalls[4];  // horizons 1, 2, 4, 8
  };
  const Row rows[] = {{0.5, {5, 0, 0, 0}},
                      {1, {10, 0, 0, 0}},
                      {2, {20, 0, 0, 0}},
                      {3, {31, 11, 11, 11}},
                      {4, {42, 22, 22, 22}}};
  for (const Row& row : rows) {
    for (int column = 0; column < 4; ++column) {
      const int horizon = 1 << column;
      EXPECT_EQ(chain_stall(program, {.horizon = horizon}, row.load), row.stalls[column])
          << "load " << row.load << ", horizon " << horizon;
    }
  }
}

TEST(Activations, the_last_layer_stalls_neither_where_it_is_kept_nor_where_it_is_on_its_way) {
  const ActivationProgram program = layer_chain(12);
  EXPECT_EQ(chain_stall(program, {.keep_last = 0}, 2), 0);
  EXPECT_EQ(chain_stall(program, {.keep_last = 1}, 2), 0);
  for (const int keep : {0, 1, 2, 5, 12}) {
    const ActivationPlan plan = plan_activations(program, {.keep_last = keep});
    for (int layer = 0; layer < 12; ++layer) {
      EXPECT_EQ(plan.storages[std::size_t(layer)].placement == StoragePlacement::offloaded,
                layer < 12 - keep)
          << "layer " << layer << ", keep_last " << keep;
    }
  }
}

TEST(Activations, no_more_than_the_horizon_is_loaded_and_in_the_order_of_use) {
  for (const int horizon : {1, 2, 3, 7, 20}) {
    const ActivationProgram program = layer_chain(12);
    const ActivationPlan plan = plan_activations(program, {.horizon = horizon});
    std::vector<int> order;
    int loaded = 0, most = 0;
    for (std::size_t step = 0; step < program.steps.size(); ++step) {
      order.insert(order.end(), plan.loads[step].begin(), plan.loads[step].end());
      loaded += static_cast<int>(plan.loads[step].size());
      most = std::max(most, loaded);
      loaded -= static_cast<int>(std::ranges::count_if(plan.drops[step], [&](int storage) {
        return plan.storages[std::size_t(storage)].placement == StoragePlacement::offloaded;
      }));
    }
    EXPECT_EQ(most, std::min(horizon, 11));
    EXPECT_EQ(loaded, 0);
    EXPECT_THAT(order, ElementsAre(10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    EXPECT_EQ(plan.storages[10].loaded, 12) << "not ahead of the first backward";
    EXPECT_EQ(plan.offloaded_bytes, 1100u);
  }
}

TEST(Activations, a_horizon_of_tasks_is_a_distance_in_the_schedule) {
  const Schedule schedule = make_schedule(schedule_named("gpipe"), {.ranks = 1, .microbatches = 6});
  const std::vector<StageLayers> layers = {{.first = 0, .tape_bytes = {10, 20}}};
  const ActivationProgram program = activation_program(schedule, 0, layers);
  ASSERT_EQ(program.steps.size(), 24u);
  for (const int horizon : {1, 2, 4}) {
    const ActivationPlan plan =
        plan_activations(program, {.unit = HorizonUnit::tasks, .horizon = horizon, .keep_last = 0});
    for (int storage = 0; storage < 12; ++storage) {
      // Micro-batch i is made in task i and used in task 6 + i; a task has two steps.
      const int task = storage / 2 + 6 - horizon;
      EXPECT_EQ(plan.storages[std::size_t(storage)].loaded, 2 * task)
          << "micro-batch " << storage / 2 << ", horizon " << horizon;
    }
  }
}

TEST(Activations, tasks_of_one_microbatch_save_nothing) {
  const Schedule schedule = make_schedule(schedule_named("gpipe"), {.ranks = 1, .microbatches = 1});
  const std::vector<StageLayers> layers = {{.first = 0, .tape_bytes = {1, 2, 3}}};
  const ActivationPlan plan = plan_activations(
      activation_program(schedule, 0, layers),
      {.unit = HorizonUnit::tasks, .horizon = default_horizon(HorizonUnit::tasks)});
  EXPECT_EQ(plan.offloaded_bytes, 0u);
}

TEST(Activations, a_rank_of_a_schedule_has_the_layers_of_its_stages) {
  const Schedule schedule = make_schedule(schedule_named("gpipe"), {.ranks = 2, .microbatches = 2});
  const std::vector<StageLayers> layers = {{.first = 0, .tape_bytes = {10}},
                                           {.first = 1, .tape_bytes = {20, 30}}};
  const ActivationProgram program = activation_program(schedule, 1, layers);
  std::string told;
  for (const TapeStep& step : program.steps) {
    const Tape& tape = program.tapes[std::size_t(step.tape)];
    told += std::to_string(step.task) + (step.pass == TapePass::forward ? 'F' : 'B') +
            std::to_string(tape.layer) + "." + std::to_string(tape.microbatch) + ' ';
  }
  EXPECT_EQ(told, "0F1.0 0F2.0 1F1.1 1F2.1 2B2.0 2B1.0 3B2.1 3B1.1 ");
  EXPECT_THAT(program.storage_bytes, ElementsAre(20, 30, 20, 30));
}

TEST(Activations, small_storages_stay) {
  ActivationProgram program = layer_chain(4);
  program.storage_bytes = {10, 1000, 10, 1000};
  const ActivationPlan plan = plan_activations(program, {.min_bytes = 100});
  EXPECT_EQ(plan.storages[0].placement, StoragePlacement::too_small);
  EXPECT_EQ(plan.storages[1].placement, StoragePlacement::offloaded);
  EXPECT_EQ(plan.storages[3].placement, StoragePlacement::used_soon) << "the last";
}

TEST(Activations, views_of_one_storage_are_stored_and_loaded_once) {
  ActivationProgram program = layer_chain(5);
  // Layers 1 and 2 save the same storage, and storage 1 is layer 2's alone.
  program.tapes[1].storages = {2};
  program.tapes[2].storages = {2, 1};
  const ActivationPlan plan = plan_activations(program, {.horizon = 8});
  EXPECT_EQ(plan.storages[2].stored, 2) << "after the last forward that saves it";
  EXPECT_EQ(plan.storages[2].dropped, 8) << "after the backward of layer 1";
  for (std::size_t storage = 0; storage < 5; ++storage) {
    int stores = 0, loads = 0;
    for (std::size_t step = 0; step < program.steps.size(); ++step) {
      stores += static_cast<int>(std::ranges::count(plan.stores[step], int(storage)));
      loads += static_cast<int>(std::ranges::count(plan.loads[step], int(storage)));
    }
    EXPECT_EQ(stores, storage == 4 ? 0 : 1) << storage;
    EXPECT_EQ(loads, stores) << storage;
  }
}

TEST(Activations, loads_ahead_keep_to_their_bytes_but_what_is_in_use_is_there) {
  const ActivationProgram program = layer_chain(12);
  for (const std::size_t most : {std::size_t{50}, std::size_t{100}, std::size_t{350}}) {
    const ActivationPlan plan =
        plan_activations(program, {.horizon = 12, .keep_last = 0, .max_loaded_bytes = most});
    std::size_t loaded = 0, peak = 0;
    for (std::size_t step = 0; step < program.steps.size(); ++step) {
      loaded += 100 * plan.loads[step].size();
      peak = std::max(peak, loaded);
      loaded -= 100 * plan.drops[step].size();
    }
    EXPECT_EQ(peak, std::max<std::size_t>(100, most / 100 * 100)) << most;
  }
}

/// A storage may be in several tapes, and tapes are used in any order.
ActivationProgram random_program(std::mt19937& random) {
  const int tapes = 1 + static_cast<int>(random() % 9);
  ActivationProgram program;
  program.storage_bytes.assign(std::size_t(tapes), 10);
  std::vector<int> order(static_cast<std::size_t>(tapes));
  std::iota(order.begin(), order.end(), 0);
  for (const int tape : order) {
    program.tapes.push_back({.layer = tape, .microbatch = 0, .storages = {tape}});
    if (tape > 0 && random() % 3 == 0) {
      program.tapes.back().storages.push_back(static_cast<int>(random()) & (tape - 1));
    }
    program.steps.push_back({.pass = TapePass::forward, .tape = tape, .task = tape});
  }
  std::ranges::shuffle(order, random);
  for (const int tape : order) {
    const int task = static_cast<int>(program.steps.size());
    program.steps.push_back({.pass = TapePass::backward, .tape = tape, .task = task});
  }
  return program;
}

TEST(Activations, every_plan_has_in_memory_what_a_step_uses) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const ActivationProgram program = random_program(random);
    OffloadOptions options{.horizon = 1 + static_cast<int>(random() % 4),
                           .keep_last = static_cast<int>(random() % 3)};
    options.unit = random() % 2 == 0 ? HorizonUnit::tensors : HorizonUnit::tasks;
    const ActivationPlan plan = plan_activations(program, options);
    const std::vector<memory::Buffer> buffers = activation_buffers(program, plan);
    for (std::size_t step = 0; step < program.steps.size(); ++step) {
      for (const int storage : program.tapes[std::size_t(program.steps[step].tape)].storages) {
        const memory::Lives now = {{step, step + 1}};
        EXPECT_TRUE(memory::overlap(buffers[std::size_t(storage)].lives, now))
            << "round " << round << ", step " << step << ", storage " << storage;
      }
    }
    std::vector<memory::Buffer> all_kept = buffers;
    for (memory::Buffer& buffer : all_kept) {
      buffer.lives = {{buffer.lives.front().from, buffer.lives.back().to}};
    }
    EXPECT_LE(memory::peak_bytes(buffers), memory::peak_bytes(all_kept));
  }
}

// What is planned for a horizon has room for any smaller one, which may be chosen while a job runs.
TEST(Activations, a_smaller_horizon_needs_no_memory_that_a_larger_one_does_not) {
  std::mt19937 random(12);
  for (int round = 0; round < 300; ++round) {
    const ActivationProgram program = random_program(random);
    OffloadOptions options{.keep_last = static_cast<int>(random() % 3)};
    options.unit = random() % 2 == 0 ? HorizonUnit::tensors : HorizonUnit::tasks;
    std::vector<memory::Buffer> larger;
    for (options.horizon = 8; options.horizon >= 1; --options.horizon) {
      const auto buffers = activation_buffers(program, plan_activations(program, options));
      for (std::size_t one = 0; one < larger.size(); ++one) {
        for (const memory::Life& life : buffers[one].lives) {
          EXPECT_TRUE(std::ranges::any_of(larger[one].lives,
                                          [&](const memory::Life& other) {
                                            return other.from <= life.from && life.to <= other.to;
                                          }))
              << "round " << round << ", horizon " << options.horizon << ", storage " << one;
        }
      }
      larger = buffers;
    }
  }
}

TEST(Activations, peak_of_a_chain_is_what_is_on_its_way_out_or_the_horizon) {
  const ActivationProgram program = layer_chain(12);
  for (const int horizon : {1, 2, 4}) {
    const ActivationPlan plan = plan_activations(program, {.horizon = horizon});
    // Forwards have what computes and the two before it. In backwards the kept one is there beside
    // as many as are loaded.
    EXPECT_EQ(memory::peak_bytes(activation_buffers(program, plan)),
              100u * static_cast<unsigned>(std::max(1 + store_steps, horizon + 1)));
  }
}

TEST(HorizonChoice, is_the_smallest_that_stalls_least) {
  const ActivationProgram program = layer_chain(12);
  for (const double load : {0.0, 0.5, 1.0, 2.0, 3.0, 4.0}) {
    const HorizonChoice choice =
        choose_horizon(program, {.horizon = 12}, even_times(program, load));
    EXPECT_EQ(choice.horizon, load == 0 ? 1 : 2) << "load " << load;
    ASSERT_EQ(choice.stalls.size(), 12u);
    EXPECT_EQ(choice.stalls[0], chain_stall(program, {.horizon = 1}, load));
  }
}

TEST(HorizonChoice, one_slow_load_wants_more_and_memory_bounds_it) {
  const ActivationProgram program = layer_chain(12);
  ActivationTimes times = even_times(program, 1);
  times.loads[4] = 7;  // hidden only behind several backwards
  const HorizonChoice choice = choose_horizon(program, {.horizon = 12}, times);
  EXPECT_GT(choice.horizon, 2);
  EXPECT_EQ(choice.stalls[std::size_t(choice.horizon) - 1], 0);
  EXPECT_GT(choice.stalls[std::size_t(choice.horizon) - 2], 0);
  EXPECT_EQ(choose_horizon(program, {.horizon = 12, .max_loaded_bytes = 200}, times).horizon, 2);
  const HorizonChoice bounded = choose_horizon(program, {.horizon = 2}, times);
  EXPECT_EQ(bounded.horizon, 2);
  EXPECT_EQ(bounded.stalls.size(), 2u);
}

/// What would still be in memory if forwards had not waited for its store saves no load.
TEST(HorizonChoice, is_small_where_the_link_takes_all_the_time) {
  const ActivationProgram program = layer_chain(12);
  for (const double transfer : {4.0, 5.0, 8.0, 16.0}) {
    ActivationTimes times = even_times(program, transfer);
    std::ranges::fill(times.stores, transfer);
    const HorizonChoice choice = choose_horizon(program, {.horizon = 12}, times);
    EXPECT_EQ(choice.horizon, 2) << transfer;
    const StallModel model = model_stall(program, plan_activations(program, {.horizon = 2}), times);
    EXPECT_EQ(choice.stalls[1], model.stall + model.store_wait);
    EXPECT_GT(model.store_wait, 0) << transfer;
  }
}

TEST(HorizonChoice, takes_no_memory_to_save_less_than_a_hundredth) {
  const ActivationProgram program = layer_chain(12);
  // Computing takes 36, and a horizon of 1 stalls for ten loads.
  EXPECT_EQ(choose_horizon(program, {}, even_times(program, 0.035)).horizon, 1);
  EXPECT_EQ(choose_horizon(program, {}, even_times(program, 0.04)).horizon, 2);
}

TEST(StallModel, spares_what_has_not_left_its_trip) {
  const ActivationProgram program = layer_chain(4);
  const ActivationPlan plan = plan_activations(program, {.keep_last = 0});
  ActivationTimes times = even_times(program, 5);
  // Layer 0 leaves until 2.5, layer 1 until 4, layer 2 not before 5.5; forwards end at 4.
  times.stores = {1.5, 1.5, 1.5, 1.5};
  const StallModel model = model_stall(program, plan, times);
  EXPECT_EQ(model.load_busy, 10) << "of layers 0 and 1";
  // 3 and 2 are there. Layer 1 is asked for at 6 and layer 0 at 8; loads end at 11 and 16.
  EXPECT_EQ(model.stall, (11 - 8) + (16 - 13));
  EXPECT_EQ(model.total, 18);
}

TEST(StallModel, waits_for_stores_whose_time_is_up) {
  const ActivationProgram program = layer_chain(6);  // whose last layer stays
  struct Row {
    double transfer;  // a store or a load
    double store_wait;
    double stalls[4];  // horizons 1, 2, 3, 4
  };
  // Stores follow each other from 1 on, and the second step behind each waits for its end. With 2
  // they end at 3, 5, 7 and 9; the forwards that wait for them would end at 3, 4, 6 and 8.
  const Row rows[] = {{1, 0, {4, 0, 0, 0}},
                      {1.5, 1, {6, 0, 0, 0}},
                      {2, 3, {8, 0, 0, 0}},
                      {3, 7, {12, 3, 2, 2}},
                      {4, 11, {16, 6, 6, 6}}};
  for (const Row& row : rows) {
    ActivationTimes times = even_times(program, row.transfer);
    std::ranges::fill(times.stores, row.transfer);
    for (int horizon = 1; horizon <= 4; ++horizon) {
      const StallModel model =
          model_stall(program, plan_activations(program, {.horizon = horizon}), times);
      const double stall = row.stalls[horizon - 1];
      EXPECT_EQ(model.store_wait, row.store_wait) << row.transfer << ", horizon " << horizon;
      EXPECT_EQ(model.stall, stall) << row.transfer << ", horizon " << horizon;
      EXPECT_EQ(model.total, 18 + row.store_wait + stall);
    }
  }
}

TEST(StallModel, counts_what_is_hidden) {
  const ActivationProgram program = layer_chain(12);
  const ActivationTimes times = even_times(program, 3);
  const StallModel model = model_stall(program, plan_activations(program, {}), times);
  EXPECT_EQ(model.load_busy, 33);
  EXPECT_EQ(model.total, 12 + 24 + 11);
  EXPECT_DOUBLE_EQ(model.overlap(), 1 - 11.0 / 33);
}

TEST(Activations, programs_and_options_that_make_no_sense_are_refused) {
  const ActivationProgram good = layer_chain(3);
  EXPECT_THAT(activation_refusal([&] { plan_activations(good, {.horizon = 0}); }),
              HasSubstr("1 or more, not 0"));
  EXPECT_THAT(activation_refusal([&] { plan_activations(good, {.keep_last = -1}); }),
              HasSubstr("not -1"));
  ActivationProgram bad = good;
  std::swap(bad.steps.front(), bad.steps.back());
  bad.steps.front().task = 0;
  EXPECT_THAT(activation_refusal([&] { plan_activations(bad, {}); }),
              HasSubstr("step 0 uses the tape of layer 0, micro-batch 0 before"));
  bad = good;
  bad.steps.pop_back();
  EXPECT_THAT(activation_refusal([&] { plan_activations(bad, {}); }),
              HasSubstr("no step uses the tape of layer 0"));
  bad = good;
  bad.tapes[1].storages = {7};
  EXPECT_THAT(activation_refusal([&] { plan_activations(bad, {}); }),
              HasSubstr("layer 1 names storage 7; there are 3"));
  EXPECT_THAT(activation_refusal([&] { model_stall(good, plan_activations(good, {}), {}); }),
              HasSubstr("times of 0 steps"));
  const Schedule schedule = make_schedule(schedule_named("gpipe"), {.ranks = 2, .microbatches = 2});
  EXPECT_THAT(activation_refusal([&] { activation_program(schedule, 2, {}); }),
              HasSubstr("0 to 1, not 2"));
  EXPECT_THAT(activation_refusal([&] { activation_program(schedule, 0, {}); }),
              HasSubstr("2 stages, but layers are told of 0"));
}

}  // namespace
}  // namespace sprat::mp
