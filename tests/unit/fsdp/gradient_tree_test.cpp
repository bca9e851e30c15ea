// Gradients added in a tree: the same bits however micro-batches are shared among ranks, and
// whichever comes first.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "sprat/fsdp.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/fsdp/chaos_queue.hpp"
#include "tests/unit/fsdp/small_model.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp {
namespace {

/// Micro-batches of a step, shared among ranks.
struct Share {
  int ranks, micro_steps;
};

std::string share_name(const Share& share, const FsdpOptions& options) {
  return text(share.ranks, " ranks of ", share.micro_steps, " micro-batches, ", row_name(options));
}

/// What a micro-batch gives does not depend on who computes it: its number among all ranks counts.
Gradient shared(const Gradient& gradient, int micro_steps) {
  return [=](GradientKey at) {
    at.rank = at.rank * micro_steps + at.microbatch;
    at.visit = at.use;
    return gradient(at);
  };
}

Outcome train_in_tree(const Share& share, FsdpOptions options, const Gradient& gradient,
                      const QueueKind& queues = inline_queue()) {
  options.gradient_order = GradientOrder::tree;
  options.micro_steps = share.micro_steps;
  return train({.ranks = share.ranks, .options = options, .steps = 2},
               shared(gradient, share.micro_steps), queues);
}

/// Options whose bits do not depend on how micro-batches are shared.
struct Precision {
  const char* name;
  std::function<void(FsdpOptions&)> apply;
};

const std::vector<Precision> precisions = {
    {"f32", [](FsdpOptions&) {}},
    {"bf16 parameters", [](FsdpOptions& o) { o.parameter_dtype = DType::bf16; }},
    {"bf16 parameters rounded by chance",
     [](FsdpOptions& o) {
       o.parameter_dtype = DType::bf16;
       o.stochastic_rounding = true;
     }},
    {"f16 parameters with a loss scale",
     [](FsdpOptions& o) {
       o.parameter_dtype = DType::f16;
       o.loss_scale = {.dynamic = true, .initial = 16};
     }},
    {"small parameters persist", [](FsdpOptions& o) { o.persistence_threshold = 100; }},
    {"whole units persist", [](FsdpOptions& o) { o.persistence_threshold = 3000; }},
    {"everything in files",
     [](FsdpOptions& o) { o.state_tier = o.shard_tier = "file:" + testing::TempDir(); }},
};

TEST(GradientTree, bits_depend_on_the_number_of_micro_batches_of_all_ranks_alone) {
  for (const Precision& precision : precisions) {
    FsdpOptions one;
    precision.apply(one);
    const Outcome truth = train_in_tree({.ranks = 1, .micro_steps = 8}, one, noisy);
    for (const Share share : {Share{2, 4}, Share{4, 2}, Share{8, 1}}) {
      // Of eight ranks, whose trainings take longest, all rows with the first precision only.
      const bool all = share.ranks < 8 || &precision == &precisions.front();
      for (FsdpOptions options :
           all ? part_if_sanitized(all_rows(share.ranks), 3) : std::vector<FsdpOptions>(1)) {
        precision.apply(options);
        expect_same_bits(train_in_tree(share, options, noisy), truth,
                         text(precision.name, ", ", share_name(share, options)));
      }
    }
  }
}

TEST(GradientTree, of_tied_units_each_has_a_tree_of_its_own) {
  for (const std::size_t threshold : {std::size_t{0}, std::size_t{100}}) {
    const auto tied = [&](const Share& share, FsdpOptions options) {
      options.persistence_threshold = threshold;
      options.gradient_order = GradientOrder::tree;
      options.micro_steps = share.micro_steps;
      options.visits = plain_visits(small_tied_forward, small_tied_backward, share.micro_steps);
      return train(
          {.ranks = share.ranks, .options = options, .steps = 2, .units = small_tied_units()},
          shared(noisy, share.micro_steps));
    };
    const Outcome truth = tied({.ranks = 1, .micro_steps = 8}, {});
    for (const Share share : {Share{2, 4}, Share{4, 2}}) {
      for (const FsdpOptions& options : all_rows(share.ranks)) {
        expect_same_bits(tied(share, options), truth, share_name(share, options));
      }
    }
  }
}

TEST(GradientTree, in_sequence_bits_depend_on_who_has_which_micro_batch) {
  const auto in_sequence = [](const Share& share) {
    FsdpOptions options;
    options.micro_steps = share.micro_steps;
    options.accumulate = Accumulate::local;
    return train({.ranks = share.ranks, .options = options, .steps = 2},
                 shared(noisy, share.micro_steps));
  };
  EXPECT_NE(in_sequence({1, 8}).values, in_sequence({8, 1}).values);
}

// The tree over all splits at ranks where a rank has 2^k of them; how many ranks there are does not
// matter where no row sums them in two hops.
TEST(GradientTree, with_a_power_of_two_of_micro_batches_any_number_of_ranks_gives_the_same_bits) {
  const Outcome truth = train_in_tree({.ranks = 1, .micro_steps = 12}, {}, noisy);
  for (const Share share : {Share{3, 4}, Share{6, 2}, Share{12, 1}}) {
    for (const char* row : {"ddp", "zero1", "zero2", "zero3"}) {
      const FsdpOptions options{.strategy = row};
      expect_same_bits(train_in_tree(share, options, noisy), truth, share_name(share, options));
    }
  }
}

TEST(GradientTree, of_any_numbers_rows_of_one_hop_agree) {
  for (const Share share : {Share{2, 3}, Share{3, 5}, Share{4, 6}}) {
    const Outcome truth = train_in_tree(share, {.strategy = "ddp"}, noisy);
    for (const char* row : {"zero1", "zero2", "zero3"}) {
      const FsdpOptions options{.strategy = row};
      expect_same_bits(train_in_tree(share, options, noisy), truth, share_name(share, options));
    }
  }
}

/// Each rank's sum is rounded to the wire once: rows agree, other shares need not.
TEST(GradientTree, of_a_narrow_wire_rows_agree_and_shares_if_nothing_is_rounded) {
  for (const DType wire : {DType::bf16, DType::f16}) {
    for (const Share share : {Share{2, 4}, Share{4, 2}}) {
      const Outcome truth = train_in_tree(share, {.strategy = "ddp", .gradient_wire = wire}, noisy);
      for (FsdpOptions options : all_rows(share.ranks)) {
        options.gradient_wire = wire;
        expect_same_bits(train_in_tree(share, options, noisy), truth, share_name(share, options));
      }
    }
    const Outcome exact = train_in_tree({.ranks = 1, .micro_steps = 8}, {}, small_integer);
    for (const Share share : {Share{2, 4}, Share{8, 1}}) {
      const FsdpOptions options{.gradient_wire = wire};
      expect_same_bits(train_in_tree(share, options, small_integer), exact,
                       share_name(share, options));
    }
  }
}

/// A step as no schedule has it: micro-batches forward in any order, then all of their backwards in
/// any order that leaves each micro-batch's own as it is.
std::vector<Visit> shuffled_visits(int micro_steps, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  std::vector<int> order;
  std::vector<std::size_t> done(static_cast<std::size_t>(micro_steps), 0);
  std::vector<Visit> visits;
  for (int microbatch = 0; microbatch < micro_steps; ++microbatch) {
    for (const int unit : small_forward) {
      visits.push_back({unit, VisitPass::forward, microbatch});
    }
    order.insert(order.end(), small_backward.size(), microbatch);
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const int microbatch : order) {
    const std::size_t place = done[static_cast<std::size_t>(microbatch)]++;
    visits.push_back({small_backward[place], VisitPass::backward, microbatch});
  }
  return visits;
}

TEST(GradientTree, the_order_in_which_micro_batches_finish_does_not_matter) {
  for (const int micro_steps : {4, 5}) {
    const Share share{.ranks = 2, .micro_steps = micro_steps};
    for (const std::size_t threshold : {std::size_t{0}, std::size_t{100}}) {
      const Outcome truth = train_in_tree(share, {.persistence_threshold = threshold}, noisy);
      for (FsdpOptions options : part_if_sanitized(all_rows(2), 2, threshold / 100)) {
        options.persistence_threshold = threshold;
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
          options.visits = shuffled_visits(micro_steps, seed);
          expect_same_bits(train_in_tree(share, options, noisy), truth,
                           text("seed ", seed, ", ", share_name(share, options)));
        }
      }
    }
  }
}

TEST(GradientTree, late_collectives_and_poisoned_slots_do_not_change_bits) {
  const Share share{.ranks = 4, .micro_steps = 4};
  for (FsdpOptions options : {FsdpOptions{.strategy = "zero3"},
                              FsdpOptions{.strategy = "zero1", .gradient_wire = DType::bf16},
                              FsdpOptions{.strategy = "hsdp",
                              .hybrid_shard_degree = 2,
                              .reductions_in_flight = 2,
                              .persistence_threshold = 100}}) {
    const Outcome truth = train_in_tree(share, options, noisy);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      options.visits = shuffled_visits(share.micro_steps, seed);
      expect_same_bits(train_in_tree(share, options, noisy, chaos_queue(seed)), truth,
                       text("seed ", seed, ", ", share_name(share, options)));
    }
  }
}

/// A pipeline may compute weights' gradients long after the visits: those are then named.
TEST(GradientTree, named_micro_batches_may_be_written_whenever_the_caller_likes) {
  constexpr int micro_steps = 5;
  FsdpOptions options{.strategy = "zero3", .persistence_threshold = 100};
  const Share share{.ranks = 2, .micro_steps = micro_steps};
  options.gradient_order = GradientOrder::tree;
  options.micro_steps = micro_steps;
  const Gradient gradient = shared(noisy, micro_steps);
  const Outcome truth = train({.ranks = 2, .options = options, .steps = 1}, gradient);
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    Engine model(world, small_units(), with_small_order(options));
    std::vector<std::vector<std::vector<float>>> values(small_shapes.size());
    for (const Visit& visit : model.options().visits) {
      model.acquire(visit.unit);
      auto& of_unit = values[static_cast<std::size_t>(visit.unit)];
      of_unit.clear();
      for (int index = 0; index < std::ssize(small_shapes[visit.unit]); ++index) {
        const ConstElements full = model.parameter(visit.unit, index);
        const auto* const first = static_cast<const float*>(full.data);
        of_unit.emplace_back(first, first + full.count);
      }
      model.release(visit.unit);
    }
    for (const int microbatch : {3, 0, 4, 2, 1}) {
      for (int unit = 0; unit < std::ssize(small_shapes); ++unit) {
        for (int index = 0; index < std::ssize(small_shapes[unit]); ++index) {
          const std::vector<float>& parameter = values[unit][index];
          for (int use = 0; use < std::ranges::count(small_backward, unit); ++use) {
            const GradientTarget into = model.gradient_target(unit, index, microbatch);
            for (std::size_t i = 0; i < parameter.size(); ++i) {
              const float one =
                  gradient({world.rank(), 0, 0, unit, index, i, parameter[i], microbatch, use});
              into.values[i] = into.fresh ? one : into.values[i] + one;
            }
          }
        }
        model.reduce(unit, microbatch);
      }
    }
    EXPECT_EQ(model.step(small_rate, 0).grad_norm, truth.norms[0]) << share_name(share, options);
    EXPECT_EQ(read_parameters(model), truth.values);
  });
}

TEST(GradientTree, a_micro_batch_is_finished_once) {
  run_virtual_ranks(1, Config{}, [](Communicator& world) {
    ShardedModel model(world, small_units(),
                       with_small_order({.micro_steps = 2, .gradient_order = GradientOrder::tree}));
    model.reduce(1);
    EXPECT_EQ(message_of([&] { model.reduce(1); }),
              "reduce() of unit \"block0\" came twice in micro-batch 0; acquire() the unit for the "
              "next first, or name it");
    EXPECT_EQ(
        message_of([&] { model.gradient(1, 0); }),
        "gradient() of unit \"block0\" in micro-batch 0, after the reduce() of that; acquire() "
        "the unit for the next first, or name it");
    EXPECT_EQ(message_of([&] { model.gradient(1, 0, 2); }),
              "there is no micro-batch 2; micro-batches are 0 to 1");
    model.reduce(1, 1);
    EXPECT_EQ(message_of([&] { model.reduce(1, 1); }),
              "reduce() of unit \"block0\" came 3 times before step(); micro_steps is 2");
  });
}

/// A chain of equal units. One after another, of 2^k micro-batches a unit has at most k sums that
/// wait for their neighbours and the one that is made; what is made has room enough once for all.
TEST(GradientTree, memory_grows_with_the_logarithm_of_micro_batches_and_is_planned) {
  constexpr std::size_t units = 6;
  std::vector<UnitSpec> chain;
  for (std::size_t unit = 0; unit < units; ++unit) {
    const std::string name = text("u", unit);
    chain.push_back({.name = name, .parameters = {{.name = name + ".w", .shape = {4, 1024}}}});
    chain.back().parameters[0].initial = [](std::uint64_t) { return 0.5f; };
  }
  constexpr std::size_t bytes = 4 * 1024 * sizeof(float);
  for (const auto& [row, kept] : {std::pair{"ddp", std::size_t{1}}, {"zero3", std::size_t{0}}}) {
    for (const auto& [micro_steps, waiting] : std::map<int, std::size_t>{{2, 1}, {4, 2}, {16, 4}}) {
      run_virtual_ranks(2, Config{}, [&](Communicator& world) {
        Engine model(
            world, chain,
            {.strategy = row, .micro_steps = micro_steps, .gradient_order = GradientOrder::tree});
        EXPECT_EQ(model.memory_plan().gradient_slots, ((waiting - kept) * units + 1) * bytes)
            << row << ", " << micro_steps;
      });
    }
  }
}

TEST(GradientTree, high_water_is_the_plan_for_every_row_and_order) {
  for (FsdpOptions options : all_rows(4)) {
    options.gradient_order = GradientOrder::tree;
    for (const int micro_steps : {1, 2, 3, 8}) {
      for (const bool shuffled : {false, true}) {
        options.micro_steps = micro_steps;
        options.persistence_threshold = shuffled ? 100 : 0;
        options.visits = shuffled ? shuffled_visits(micro_steps, 7) : std::vector<Visit>{};
        run_virtual_ranks(4, Config{}, [&](Communicator& world) {
          Engine model(world, small_units(), with_small_order(options));
          for (int step = 0; step < 2; ++step) {
            run_passes(model, world.rank(), step, noisy);
            model.step(small_rate, 0);
          }
          EXPECT_EQ(model.bytes_high_water(), model.memory_plan().total())
              << row_name(options) << ", " << micro_steps << (shuffled ? ", shuffled" : "");
        });
      }
    }
  }
}

TEST(GradientTree, sums_of_numbers_have_the_bits_of_an_all_reduce) {
  for (const int count : {1, 2, 3, 5, 6, 8, 11}) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) {
      values.push_back(std::ldexp(1.0 / (i + 3), 7 * i % 20));
    }
    run_virtual_ranks(count, Config{}, [&](Communicator& world) {
      double sum = values[static_cast<std::size_t>(world.rank())];
      world.all_reduce(elements(std::span(&sum, 1)), elements(std::span(&sum, 1))).wait();
      EXPECT_EQ(tree_sum(values), sum) << count << " ranks";
    });
  }
  EXPECT_EQ(tree_sum({}), 0);
}

}  // namespace
}  // namespace sprat::fsdp
