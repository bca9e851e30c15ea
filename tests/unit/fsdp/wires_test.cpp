// Gradients and parameters that travel as blocks of codes: bits that do not ask for the placement,
// errors within their bound, what is not finite, and what it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/kernels/block_format.hpp"
#include "fsdp/plan/placement.hpp"
#include "sprat/wire.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/fsdp/small_model.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp {
namespace {

const std::vector<DType> block_wires = {DType::i8, DType::f8e4m3, DType::f8e5m2};

/// On four ranks: those with one sum over all shards, with one over all replicas, and with both.
std::vector<FsdpOptions> four_rank_rows() {
  return {{.strategy = "ddp"},
          {.strategy = "zero3"},
          {.strategy = "hsdp", .hybrid_shard_degree = 2},
          {.strategy = "hfsdp", .hybrid_shard_degree = 2}};
}

TEST(BlockWires, rows_that_sum_over_shards_alone_give_the_same_bits) {
  for (const DType wire : block_wires) {
    const FsdpOptions first{.strategy = "zero1", .gradient_wire = wire};
    const Outcome truth = train({.ranks = 4, .options = first}, noisy);
    for (const char* row : {"zero2", "zero3"}) {
      const FsdpOptions options{
          .strategy = row, .prefetch_units = 2, .reductions_in_flight = 2, .gradient_wire = wire};
      expect_same_bits(train({.ranks = 4, .options = options}, noisy), truth,
                       std::string(row) + " as " + name(wire));
    }
  }
}

TEST(BlockWires, placements_of_ranks_on_hosts_give_the_same_bits) {
  for (FsdpOptions options : four_rank_rows()) {
    options.gradient_wire = DType::i8;
    options.parameter_wire = DType::f8e4m3;
    options.error_feedback = true;
    const Job job{.ranks = 4, .options = options, .steps = 2};
    const Outcome truth = train(job, noisy);
    for (const char* hosts : {"a,b,c,d", "a,a,b,b", "a,b,a,b", "a,b,b,b"}) {
      Job placed = job;
      placed.hosts = hosts;
      expect_same_bits(train(placed, noisy), truth, row_name(options) + " on " + hosts);
    }
  }
}

TEST(BlockWires, sums_under_way_and_tiers_change_no_bit) {
  for (FsdpOptions options : four_rank_rows()) {
    options.gradient_wire = DType::i8;
    options.error_feedback = true;
    options.micro_steps = 2;
    const Outcome truth = train({.ranks = 4, .options = options}, noisy);
    options.reductions_in_flight = 3;
    options.state_tier = options.shard_tier = "file:" + testing::TempDir();
    expect_same_bits(train({.ranks = 4, .options = options}, noisy), truth, row_name(options));
  }
}

/// What a rank sees of operations that have ended: nothing before it waits for them, or all that
/// end within a while.
class SeenQueue final : public Queue {
 public:
  explicit SeenQueue(std::chrono::milliseconds patience) : patience_(patience) {}
  Pending submit(std::function<Work()> start) override {
    return Pending(std::make_unique<Seen>(start(), patience_));
  }

 private:
  class Seen final : public Pending::Operation {
   public:
    Seen(Work work, std::chrono::milliseconds patience)
        : work_(std::move(work)), patience_(patience) {}
    void wait() override { work_.wait(); }
    bool done() const override {
      const auto end = std::chrono::steady_clock::now() + patience_;
      while (std::chrono::steady_clock::now() < end) {
        if (work_.done()) {
          return true;
        }
        std::this_thread::yield();
      }
      return false;
    }

   private:
    Work work_;
    std::chrono::milliseconds patience_;
  };

  std::chrono::milliseconds patience_;
};

TEST(BlockWires, nobody_waits_for_sums_between_visits) {
  // Pairs of ranks have other parts of a model, as stages and tensor ranks do: what one computes
  // waits for the other. Of each pair, and of each two replicas, one sees that sums have ended and
  // the other does not.
  const FsdpOptions options =
      with_small_order({.strategy = "hsdp", .hybrid_shard_degree = 2, .gradient_wire = DType::i8});
  Config config;
  config.timeout = std::chrono::seconds(20);
  run_virtual_ranks(8, config, [&](Communicator& world) {
    Communicator pair = *world.split(world.rank() / 2), data = *world.split(world.rank() % 2);
    const bool outer = data.rank() == 0 || data.rank() == 3;
    const std::chrono::milliseconds patience((world.rank() % 2 == 0) == outer ? 0 : 300);
    const QueueKind queues{.make = [=] { return std::make_unique<SeenQueue>(patience); },
                           .poisons_slots = true};
    Engine model(data, small_units(), options, queues);
    for (int step = 0; step < 2; ++step) {
      run_passes(model, data.rank(), step, [&](const GradientKey& at) {
        if (at.index == 0 && at.element == 0) {
          pair.barrier();
        }
        return noisy(at);
      });
      EXPECT_FALSE(model.step(small_rate, 0).skipped);
    }
  });
}

TEST(BlockWires, parameters_have_the_same_bits_on_every_row_that_gathers_them) {
  for (const DType wire : block_wires) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      FsdpOptions options{.strategy = "zero3", .parameter_dtype = dtype, .parameter_wire = wire};
      const Job job{.ranks = 4, .options = options, .evaluate = true};
      const Outcome truth = train(job, noisy);
      for (const FsdpOptions& row : all_rows(4)) {
        if (row.strategy != "ddp" && row.hybrid_shard_degree != 1) {
          Job other = job;
          other.options.strategy = row.strategy;
          other.options.hybrid_shard_degree = row.hybrid_shard_degree;
          expect_same_bits(train(other, noisy), truth,
                           row_name(row) + ", " + name(dtype) + " as " + name(wire));
        }
      }
    }
  }
}

/// What a number of magnitude at most `most`, in a block of such, may be off by.
double bound_of(DType wire, double most) {
  const collectives::BlockFormat& format = *collectives::block_format_of(wire);
  return std::max(format.relative, format.absolute) * most;
}

TEST(BlockWires, parameters_are_used_as_their_blocks_say) {
  for (const DType wire : block_wires) {
    for (FsdpOptions options :
         {FsdpOptions{.strategy = "zero3"}, FsdpOptions{.strategy = "zero1"}}) {
      const Outcome exact = train({.ranks = 4, .options = options, .steps = 0}, noisy);
      options.parameter_wire = wire;
      const Outcome narrow = train({.ranks = 4, .options = options, .steps = 0}, noisy);
      std::size_t differ = 0;
      for (std::size_t i = 0; i < exact.values.size(); ++i) {
        const auto used = double{std::bit_cast<float>(narrow.values[i])};
        const auto initial = double{std::bit_cast<float>(exact.values[i])};
        EXPECT_LE(std::fabs(used - initial), bound_of(wire, 1)) << name(wire) << ", element " << i;
        differ += used != initial ? 1 : 0;
      }
      EXPECT_GT(differ, exact.values.size() / 2) << "nothing was encoded";
    }
  }
}

/// Every rank's part of the summed gradient of each unit, of the first step.
std::vector<std::vector<float>> summed_gradients(const FsdpOptions& options, int ranks) {
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(ranks));
  run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
    Engine model(world, small_units(), with_small_order(options));
    run_passes(model, world.rank(), 0, noisy);
    model.finish_gradients();
    auto& mine = sums[static_cast<std::size_t>(world.rank())];
    for (int unit = 0; unit < 3; ++unit) {
      const std::span<float> sum = model.summed_gradient(unit);
      mine.insert(mine.end(), sum.begin(), sum.end());
    }
    model.apply(small_rate, 1, 0);
  });
  return sums;
}

TEST(BlockWires, sums_are_off_by_no_more_than_the_errors_of_what_was_encoded) {
  constexpr int ranks = 4;
  constexpr double largest = 2 * 1.25;  // noise and a quarter of a parameter, at two visits
  for (FsdpOptions options : four_rank_rows()) {
    const auto exact = summed_gradients(options, ranks);
    for (const DType wire : block_wires) {
      options.gradient_wire = wire;
      const auto narrow = summed_gradients(options, ranks);
      // Each contribution errs, and sums that travel back err once more.
      const double of_parts = bound_of(wire, ranks * largest);
      const double bound =
          of_parts + bound_of(wire, ranks * largest + of_parts) + ranks * largest * ranks * 0x1p-23;
      for (std::size_t rank = 0; rank < exact.size(); ++rank) {
        ASSERT_EQ(exact[rank].size(), narrow[rank].size());
        for (std::size_t i = 0; i < exact[rank].size(); ++i) {
          ASSERT_LE(std::fabs(double{exact[rank][i]} - double{narrow[rank][i]}), bound)
              << row_name(options) << " as " << name(wire) << ", element " << i;
        }
      }
    }
  }
}

TEST(BlockWires, what_is_not_finite_on_one_rank_skips_the_step_on_all) {
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const Gradient broken = [odd](const GradientKey& at) {
      const bool here = at.rank == 2 && at.step == 1 && at.unit == 1 && at.index == 2;
      return here && at.element == 700 ? odd : noisy(at);
    };
    for (const DType wire : block_wires) {
      for (FsdpOptions options : four_rank_rows()) {
        options.gradient_wire = wire;
        options.error_feedback = true;
        const Outcome outcome = train({.ranks = 4, .options = options, .steps = 4}, broken);
        EXPECT_EQ(outcome.skipped, (std::vector<bool>{false, true, false, false}))
            << row_name(options) << " as " << name(wire) << " of " << odd;
      }
    }
  }
}

TEST(BlockWires, a_skipped_step_leaves_no_residual) {
  // The first step is skipped: what follows has the bits of a job that begins there.
  const auto nan_first = [](const GradientKey& at) {
    GradientKey later = at;
    later.step = at.step - 1;
    return at.step == 0 ? std::nanf("") : noisy(later);
  };
  for (FsdpOptions options : four_rank_rows()) {
    options.gradient_wire = DType::i8;
    options.error_feedback = true;
    Outcome skipping = train({.ranks = 4, .options = options, .steps = 3}, nan_first);
    const Outcome truth = train({.ranks = 4, .options = options, .steps = 2}, noisy);
    skipping.norms.erase(skipping.norms.begin());
    expect_same_bits(skipping, truth, row_name(options));
  }
}

TEST(BlockWires, gradients_of_zero_stay_zero) {
  for (const DType wire : block_wires) {
    for (FsdpOptions options : four_rank_rows()) {
      options.gradient_wire = wire;
      const Outcome outcome = train({.ranks = 4, .options = options, .steps = 1},
                                    [](const GradientKey&) { return 0.0f; });
      EXPECT_EQ(outcome.norms, std::vector<double>{0.0}) << row_name(options) << name(wire);
    }
  }
}

/// Steps of plain descent by a gradient of one large element a block and small ones, all the same
/// on both ranks; what a small element of the last unit has moved by, in units of the rate.
double moved_by_small_gradients(const FsdpOptions& given, int steps, float small) {
  FsdpOptions options = given;
  options.optimizer = {.name = "sgd", .values = {{"momentum", 0}}};
  options.clip_norm = 0;
  const Gradient uneven = [small](const GradientKey& at) {
    return at.element % wire_block_elements == 0 ? 1.0f : small;
  };
  const auto at_element = [](const Outcome& outcome) {
    return double{std::bit_cast<float>(outcome.values[outcome.values.size() - 40])};
  };
  const double before = at_element(train({.ranks = 2, .options = options, .steps = 0}, uneven));
  const double after = at_element(train({.ranks = 2, .options = options, .steps = steps}, uneven));
  return (before - after) / double{small_rate};
}

TEST(BlockWires, feedback_moves_what_blocks_alone_would_lose) {
  constexpr int steps = 20;
  constexpr float small = 0x1p-10f;  // below half a step of i8 beside 1
  constexpr double half_step = 0.5 / 127;
  for (const char* row : {"ddp", "zero3"}) {
    FsdpOptions options{.strategy = row, .gradient_wire = DType::i8};
    EXPECT_EQ(moved_by_small_gradients(options, steps, small), 0) << row;
    options.error_feedback = true;
    // Half a step is still to come, or came early, of what is sent and of what is given back; and
    // parameters below 1 are rounded in each step.
    const double bound = 2 * half_step * 1.01 + steps * 0x1p-24 / double{small_rate};
    EXPECT_NEAR(moved_by_small_gradients(options, steps, small), steps * double{small}, bound)
        << row;
  }
}

TEST(BlockWires, residuals_follow_the_loss_scale) {
  std::vector<Outcome> outcomes;
  for (const bool dynamic : {false, true}) {
    FsdpOptions options{.strategy = "hsdp",
                        .hybrid_shard_degree = 2,
                        .gradient_wire = DType::i8,
                        .error_feedback = true};
    options.loss_scale = {.dynamic = dynamic, .initial = 8, .window = 1};
    Outcome& outcome = outcomes.emplace_back();
    run_virtual_ranks(4, Config{}, [&](Communicator& world) {
      Engine model(world, small_units(), with_small_order(options));
      for (int step = 0; step < 4; ++step) {
        const auto scale = static_cast<float>(model.scaler().scale());
        EXPECT_EQ(scale, dynamic ? std::ldexp(8.0f, step) : 8.0f);
        run_passes(model, world.rank(), step,
                   [scale](const GradientKey& at) { return noisy(at) * scale; });
        model.step(small_rate, 0);
      }
      Values values = read_parameters(model);
      if (world.rank() == 0) {
        outcome.values = std::move(values);
      }
    });
  }
  expect_same_bits(outcomes[1], outcomes[0], "a scale that doubles");
}

TEST(BlockWires, payload_is_the_formula_of_the_table_for_every_row) {
  constexpr int ranks = 8;
  std::size_t next = 0;
  for (FsdpOptions options : part_if_sanitized(all_rows(ranks), 3)) {
    options.gradient_wire = block_wires[next++ % block_wires.size()];
    const Sharding sharding = choose_sharding(ranks, options.strategy, options.hybrid_shard_degree);
    std::atomic<std::uint64_t> sent = 0;
    run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
      Engine model(world, small_units(), with_small_order(options));
      run_passes(model, world.rank(), 0, noisy);
      model.step(small_rate, 0);
      sent += model.traffic().gradients;
    });
    std::uint64_t expected = 0;
    for (const UnitSpec& unit : small_units()) {
      const std::size_t padded = lay_out(unit, optimizer_part(sharding, 0).parts).padded;
      const std::vector<Hop> hops = reduction_hops(sharding);
      const auto others = static_cast<std::size_t>(sharding.size(hops.back().axis) - 1);
      // A host, or what takes its place, sends each of the others its blocks, and sums back.
      expected += others * padded / 256 * 260 * (hops.back().scatters ? 1 : 2);
      if (hops.size() > 1) {
        const auto s = static_cast<std::size_t>(sharding.shards);
        expected += ranks * (padded / s * (s - 1)) * sizeof(float);
      }
    }
    EXPECT_EQ(sent, expected) << row_name(options);
  }
}

TEST(BlockWires, parameters_send_a_block_for_each_256_elements) {
  constexpr int ranks = 4;
  for (const char* row : {"zero1", "zero2", "zero3"}) {
    std::vector<std::uint64_t> sent;
    for (const std::optional<DType> wire : {std::optional<DType>{}, std::optional(DType::i8)}) {
      run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
        Engine model(world, small_units(),
                     with_small_order({.strategy = row, .parameter_wire = wire}));
        run_passes(model, world.rank(), 0, noisy);
        model.step(small_rate, 0);
        if (world.rank() == 0) {
          sent.push_back(model.traffic().parameters);
        }
      });
    }
    EXPECT_GT(sent[1], 0u) << row;
    EXPECT_EQ(sent[1] * 1024, sent[0] * 260) << row;
  }
}

TEST(BlockWires, high_water_is_the_plan_for_every_row) {
  for (FsdpOptions options : part_if_sanitized(all_rows(4), 3)) {
    for (const int in_flight : {1, 2}) {
      for (const bool feedback : {false, true}) {
        options.reductions_in_flight = in_flight;
        options.gradient_wire = options.parameter_wire.emplace(DType::i8);
        options.error_feedback = feedback;
        run_virtual_ranks(4, Config{}, [&](Communicator& world) {
          Engine model(world, small_units(), with_small_order(options));
          for (int step = 0; step < 2; ++step) {
            run_passes(model, world.rank(), step, noisy);
            model.step(small_rate, 0);
          }
          EXPECT_EQ(model.bytes_high_water(), model.memory_plan().total())
              << row_name(options) << ", " << in_flight << " in flight";
        });
      }
    }
  }
}

TEST(BlockWires, one_sum_in_flight_stages_the_largest_unit) {
  for (const FsdpOptions& row : four_rank_rows()) {
    const auto slots_of = [&](DType wire) {
      FsdpOptions options = row;
      options.gradient_wire = wire;
      std::size_t bytes = 0;
      run_virtual_ranks(4, Config{}, [&](Communicator& world) {
        const Engine model(world, small_units(), with_small_order(options));
        if (world.rank() == 0) {
          bytes = model.memory_plan().gradient_slots;
        }
      });
      return bytes;
    };
    const Sharding sharding = choose_sharding(4, row.strategy, row.hybrid_shard_degree);
    const std::size_t largest = lay_out(small_units()[0], optimizer_part(sharding, 0).parts).padded;
    EXPECT_EQ(slots_of(DType::i8) - slots_of(DType::f32),
              encoded_hop(sharding, DType::i8, largest).staging_bytes)
        << row_name(row);
  }
}

TEST(BlockWires, what_persists_travels_in_f32) {
  for (FsdpOptions options : four_rank_rows()) {
    options.persistence_threshold = 100'000;  // all of it
    const Outcome truth = train({.ranks = 4, .options = options}, noisy);
    options.gradient_wire = options.parameter_wire.emplace(DType::i8);
    expect_same_bits(train({.ranks = 4, .options = options}, noisy), truth, row_name(options));
  }
}

TEST(BlockWires, feedback_without_blocks_is_refused) {
  run_virtual_ranks(1, Config{}, [](Communicator& world) {
    EXPECT_NE(message_of([&] {
                Engine(world, small_units(), {.error_feedback = true});
              }).find("choose one of these wires"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                Engine(world, small_units(), {.parameter_wire = DType::bf16});
              }).find("i8, f8e4m3 or f8e5m2"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace sprat::fsdp
