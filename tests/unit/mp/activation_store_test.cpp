// Activations that leave memory come back bit by bit, whatever the tier does; what fails is named,
// and nothing is left behind.
#include "mp/activation_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "sprat/error.hpp"

namespace sprat::mp {
namespace {

using testing::HasSubstr;

constexpr std::size_t tape_elements = 3000;

/// Layers on one rank, micro-batch by micro-batch, as a schedule has them.
ActivationProgram gpipe_program(int layers, int microbatches) {
  const Schedule schedule =
      make_schedule(schedule_named("gpipe"), {.ranks = 1, .microbatches = microbatches});
  const std::vector<StageLayers> stages = {
      {.first = 0,
       .tape_bytes = std::vector<std::size_t>(std::size_t(layers), tape_elements * sizeof(float))}};
  return activation_program(schedule, 0, stages);
}

std::span<float> stored_floats(ActivationStore& store, int storage) {
  const std::span<std::byte> bytes = store.storage(storage);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

float tape_element(int tape, int storage, std::size_t index) {
  return static_cast<float>(tape * 31 + storage) + static_cast<float>(index) / 4096;
}

/// Runs the program once: forwards fill what they save, backwards add up what they find, weighted
/// by when. A storage of several tapes holds what the last forward wrote.
double run_store_pass(ActivationStore& store, const ActivationProgram& program, int fail_at = -1) {
  double sum = 0;
  for (std::size_t step = 0; step < program.steps.size(); ++step) {
    if (static_cast<int>(step) == fail_at) {
      throw std::runtime_error("backward was skipped");
    }
    const TapeStep& one = program.steps[step];
    store.begin_step();
    for (const int storage : program.tapes[std::size_t(one.tape)].storages) {
      const std::span<float> values = stored_floats(store, storage);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (one.pass == TapePass::forward) {
          values[i] = tape_element(one.tape, storage, i);
        } else {
          sum += static_cast<double>(values[i]) * static_cast<double>((i * 7 + step) % 1009);
        }
      }
    }
    store.end_step();
  }
  return sum;
}

/// All in memory: nothing is stored.
double kept_sum(const ActivationProgram& program) {
  const auto tier = io::open_tier("memory");
  ActivationStore store(program, {.min_bytes = ~std::size_t{0}}, *tier);
  const double sum = run_store_pass(store, program);
  EXPECT_EQ(store.counters().stores, 0u);
  return sum;
}

std::vector<std::string> store_tiers() {
  return {"memory", "file:" + testing::TempDir(), "throttled:200000000"};
}

TEST(ActivationStore, gives_back_the_bits_whatever_leaves_and_through_whichever_tier) {
  const ActivationProgram program = gpipe_program(4, 3);
  const double expected = kept_sum(program);
  for (const std::string& name : store_tiers()) {
    for (const HorizonUnit unit : {HorizonUnit::tensors, HorizonUnit::tasks}) {
      for (const int horizon : {1, 2, 4}) {
        for (const int keep_last : {0, 1}) {
          const auto tier = io::open_any_tier(name);
          ActivationStore store(program, {.unit = unit, .horizon = horizon, .keep_last = keep_last},
                                *tier, {.poison = true});
          for (int pass = 0; pass < 2; ++pass) {
            EXPECT_EQ(run_store_pass(store, program), expected)
                << name << ", horizon " << horizon << ", keep_last " << keep_last;
          }
          EXPECT_EQ(store.bytes_high_water(), store.bytes_planned()) << name;
          EXPECT_EQ(tier->traffic().held_bytes, 0u);
        }
      }
    }
  }
}

// Memory given back is filled with NaNs, so bits would differ if it went before its copy was whole.
TEST(ActivationStore, memory_goes_only_when_its_copy_is_whole) {
  const ActivationProgram program = gpipe_program(12, 1);
  const auto tier = io::open_any_tier("throttled:20000000");  // slower than the forwards
  ActivationStore store(program, {.keep_last = 0}, *tier, {.poison = true});
  EXPECT_EQ(run_store_pass(store, program), kept_sum(program));
  EXPECT_GT(store.counters().store_wait_seconds, 0);
}

TEST(ActivationStore, a_tier_with_little_room_or_flight_changes_no_bit) {
  const ActivationProgram program = gpipe_program(6, 3);
  const double expected = kept_sum(program);
  const std::size_t slot = 12288;  // 12000 bytes in whole pages
  for (const std::size_t held : {slot, 3 * slot, 100 * slot}) {
    for (const std::size_t in_flight : {std::size_t{1}, 2 * slot}) {
      const io::TierLimits limits = {.held_bytes = held, .in_flight_bytes = in_flight};
      const auto tier = io::open_any_tier("throttled:100000000", limits);
      ActivationStore store(program, {.horizon = 3}, *tier, {.poison = true});
      EXPECT_EQ(run_store_pass(store, program), expected) << held << ", " << in_flight;
      EXPECT_LE(tier->traffic().most_held_bytes, held);
      const std::size_t all = program.tapes.size();
      EXPECT_LE(store.bytes_high_water(), all * slot);
      if (held == slot) {
        EXPECT_GT(store.counters().kept_for_room, 0u);
      }
    }
  }
}

TEST(ActivationStore, takes_less_memory_than_keeping) {
  const ActivationProgram program = gpipe_program(12, 4);
  const auto tier = io::open_tier("memory", {.in_flight_bytes = 1});
  ActivationStore store(program, {}, *tier);
  run_store_pass(store, program);
  const auto kept_tier = io::open_tier("memory");
  ActivationStore kept(program, {.min_bytes = ~std::size_t{0}}, *kept_tier);
  run_store_pass(kept, program);
  EXPECT_LT(3 * store.bytes_high_water(), kept.bytes_high_water());
}

TEST(ActivationStore, views_of_one_storage_travel_once) {
  ActivationProgram program = gpipe_program(6, 1);
  program.tapes[2].storages = {3, 2};  // layer 2 saves what layer 3 reads
  const double expected = kept_sum(program);
  const auto tier = io::open_tier("memory");
  ActivationStore store(program, {.horizon = 8}, *tier, {.poison = true});
  EXPECT_EQ(run_store_pass(store, program), expected);
  EXPECT_EQ(store.counters().stores, 5u) << "six storages, the last kept";
}

TEST(ActivationStore, the_last_layer_makes_no_round_trip) {
  const ActivationProgram program = gpipe_program(5, 1);
  for (const int keep_last : {0, 1, 3}) {
    const auto tier = io::open_tier("memory");
    ActivationStore store(program, {.keep_last = keep_last}, *tier);
    run_store_pass(store, program);
    EXPECT_EQ(store.counters().stores, static_cast<std::size_t>(5 - keep_last));
  }
}

TEST(ActivationStore, what_is_still_in_memory_when_wanted_is_not_loaded) {
  const ActivationProgram program = gpipe_program(2, 1);
  const auto tier = io::open_any_tier("throttled:20000");  // a store takes 0.6 s
  ActivationStore store(program, {.keep_last = 0}, *tier);
  EXPECT_EQ(run_store_pass(store, program), kept_sum(program));
  EXPECT_EQ(store.counters().loads, 0u);
  EXPECT_EQ(store.counters().forwarded, 2u);
}

TEST(ActivationStore, a_pass_that_is_left_early_leaves_nothing) {
  const ActivationProgram program = gpipe_program(6, 2);
  const double expected = kept_sum(program);
  const auto tier = io::open_any_tier("throttled:50000000");
  ActivationStore store(program, {.horizon = 3}, *tier, {.poison = true});
  std::size_t high_water = 0;
  for (int step = 0; step < static_cast<int>(program.steps.size()); ++step) {
    try {
      const ActivationPass pass(store);
      run_store_pass(store, program, step);
      ADD_FAILURE() << "the pass was not left";
    } catch (const std::runtime_error&) {
      EXPECT_EQ(tier->traffic().held_bytes, 0u) << "left at step " << step;
    }
    high_water = std::max(high_water, store.bytes_high_water());
  }
  EXPECT_EQ(run_store_pass(store, program), expected) << "the next pass is as any";
  EXPECT_LE(high_water, program.tapes.size() * 12288);
}

/// Memory whose writes or reads fail once told to.
class FailingPlace final : public io::TierPlace {
 public:
  struct Faults {
    std::atomic<bool> write = false, read = false;
  };
  explicit FailingPlace(Faults& faults) : faults_(faults) {}
  std::string name() const override { return "file:/full"; }
  std::span<std::byte> allocate(std::size_t) override { return {}; }
  void fetch(std::span<std::byte>) noexcept override {}
  void release(std::span<std::byte>) noexcept override {}
  void reserve(std::uint64_t end) override { bytes_.resize(end); }
  void write(std::uint64_t offset, std::span<const std::byte> piece) override {
    fail_if(faults_.write, "No space left on device; free some space");
    std::memcpy(bytes_.data() + offset, piece.data(), piece.size());
  }
  void read_ahead(std::uint64_t, std::size_t) noexcept override {}
  void read(std::uint64_t offset, std::span<std::byte> piece) override {
    fail_if(faults_.read, "Input/output error");
    std::memcpy(piece.data(), bytes_.data() + offset, piece.size());
  }
  void settle(std::uint64_t, std::size_t) override {}

 private:
  static void fail_if(bool faulty, const char* reason) {
    if (faulty) {
      throw Error(ErrorCode::unavailable, reason);
    }
  }
  Faults& faults_;
  std::vector<std::byte> bytes_;
};

std::string failed_pass(ActivationStore& store, const ActivationProgram& program, ErrorCode code) {
  try {
    const ActivationPass pass(store);
    run_store_pass(store, program);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing failed";
}

TEST(ActivationStore, a_tier_that_fails_is_named_with_the_tape_and_the_next_pass_goes_well) {
  const ActivationProgram program = gpipe_program(6, 2);
  const double expected = kept_sum(program);
  FailingPlace::Faults faults;
  io::Tier tier(std::make_unique<FailingPlace>(faults), {.in_flight_bytes = 1});
  ActivationStore store(program, {}, tier, {.poison = true});
  faults.write = true;
  EXPECT_EQ(failed_pass(store, program, ErrorCode::unavailable),
            "cannot store \"tape of layer 0, micro-batch 0\", 12000 bytes, in tier file:/full: No "
            "space left on device; free some space");
  faults.write = false;
  faults.read = true;
  EXPECT_THAT(failed_pass(store, program, ErrorCode::unavailable),
              testing::AllOf(testing::StartsWith("cannot load \"tape of layer "),
                             HasSubstr("from tier file:/full: Input/output error")));
  faults.read = false;
  EXPECT_EQ(tier.traffic().held_bytes, 0u);
  EXPECT_EQ(run_store_pass(store, program), expected);
}

TEST(ActivationStore, a_tier_that_is_too_slow_is_named_with_its_rates) {
  const ActivationProgram program = gpipe_program(4, 1);
  const auto tier = io::open_any_tier("throttled:20000", {.in_flight_bytes = 1});
  ActivationStore store(program, {}, *tier, {.patience = std::chrono::milliseconds(20)});
  EXPECT_THAT(
      failed_pass(store, program, ErrorCode::timeout),
      testing::AllOf(HasSubstr("after 20 ms there is no end of the store of \"tape of layer "
                               "0, micro-batch 0\" (12000 bytes) in tier throttled"),
                     HasSubstr("MB/s"), HasSubstr("use a faster place")));
}

TEST(ActivationStore, a_smaller_horizon_gives_the_same_bits_in_the_memory_of_the_larger) {
  const ActivationProgram program = gpipe_program(6, 3);
  const double expected = kept_sum(program);
  for (const HorizonUnit unit : {HorizonUnit::tensors, HorizonUnit::tasks}) {
    const auto tier = io::open_tier("memory", {.in_flight_bytes = 1});
    ActivationStore store(program, {.unit = unit, .horizon = 4}, *tier, {.poison = true});
    // One store may be under way beyond what is planned.
    const std::size_t most = store.bytes_planned() + 12288;
    for (const int horizon : {4, 1, 3, 2}) {
      store.set_horizon(horizon);
      EXPECT_EQ(run_store_pass(store, program), expected) << horizon;
      EXPECT_LE(store.bytes_high_water(), most) << horizon;
    }
  }
}

TEST(ActivationStore, a_horizon_is_chosen_between_passes_from_those_that_were_planned_for) {
  const ActivationProgram program = gpipe_program(3, 1);
  const auto tier = io::open_tier("memory");
  ActivationStore store(program, {.horizon = 3}, *tier);
  const auto refusal = [&](int horizon) -> std::string {
    try {
      store.set_horizon(horizon);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refusal(4), HasSubstr("a horizon of 4 was not planned for; memory is for 1 to 3"));
  EXPECT_THAT(refusal(0), HasSubstr("a horizon of 0 was not planned for"));
  store.begin_step();
  store.end_step();
  EXPECT_THAT(refusal(2), HasSubstr("between passes, and step 1 comes next"));
  store.restart();
  EXPECT_EQ(refusal(2), "taken");
}

TEST(ActivationStore, times_are_those_of_the_link_and_of_all_that_passes_between_steps) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds computing(1);
  const ActivationProgram program = gpipe_program(4, 1);
  const auto tier = io::open_any_tier("throttled:4000000");  // a tape takes 3 ms
  ActivationStore store(program, {.keep_last = 0}, *tier);
  EXPECT_FALSE(store.choose_horizon());
  for (const TapeStep& step : program.steps) {
    store.begin_step();
    EXPECT_EQ(store.storage(step.tape).size(), tape_elements * sizeof(float));
    store.end_step();
    const bool leaves = step.pass == TapePass::forward && step.tape == 3;
    const auto begin = Clock::now();
    while (Clock::now() - begin < computing || (leaves && tier->traffic().stored_bytes == 0)) {
      std::this_thread::yield();
    }
  }
  ASSERT_TRUE(store.times());
  for (std::size_t step = 0; step + 1 < program.steps.size(); ++step) {
    EXPECT_GE(store.times()->steps[step], 1e-3) << step;
  }
  for (const double seconds : store.times()->stores) {
    EXPECT_GE(seconds, 3e-3);
  }
  EXPECT_EQ(store.choose_horizon()->stalls.size(), 2u);
}

TEST(ActivationStore, times_of_steps_leave_out_what_is_waited_for) {
  using Clock = std::chrono::steady_clock;
  const ActivationProgram program = gpipe_program(6, 1);
  const auto tier = io::open_any_tier("throttled:400000");  // a tape takes 30 ms
  ActivationStore store(program, {.keep_last = 0}, *tier);
  const auto begin = Clock::now();
  run_store_pass(store, program);
  const double all = std::chrono::duration<double>(Clock::now() - begin).count();
  ASSERT_TRUE(store.times());
  const std::vector<double>& steps = store.times()->steps;
  const ActivationCounters& waited = store.counters();
  EXPECT_GT(waited.store_wait_seconds, 0);
  EXPECT_LE(std::accumulate(steps.begin(), steps.end(), 0.0) + waited.store_wait_seconds +
                waited.stall_seconds,
            all)
      << "nothing counts twice";
}

TEST(ActivationStore, a_tier_that_ends_no_transfer_leaves_the_horizon_open) {
  const ActivationProgram program = gpipe_program(1, 1);
  const auto tier = io::open_any_tier("throttled:20000");  // a store takes 0.6 s
  ActivationStore store(program, {.keep_last = 0}, *tier);
  run_store_pass(store, program);
  EXPECT_FALSE(store.choose_horizon());
}

TEST(ActivationStore, memory_is_a_steps_own) {
  const ActivationProgram program = gpipe_program(3, 1);
  const auto tier = io::open_tier("memory");
  ActivationStore store(program, {}, *tier);
  store.begin_step();
  EXPECT_EQ(store.storage(0).size(), tape_elements * sizeof(float));
  try {
    store.storage(1);
    ADD_FAILURE() << "another step's storage was given";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("storage 1 is none of layer 0, micro-batch 0"));
  }
}

}  // namespace
}  // namespace sprat::mp
