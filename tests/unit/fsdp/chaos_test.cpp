// Races: collectives that come late, and freed memory full of NaNs, must not change a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/fsdp/chaos_queue.hpp"
#include "tests/unit/fsdp/small_model.hpp"

namespace sprat::fsdp {
namespace {

/// So many seeds; SPRAT_CHAOS_SEEDS=1000 is the whole campaign.
int seeds() {
  const char* const given = std::getenv("SPRAT_CHAOS_SEEDS");
  return given != nullptr ? std::atoi(given) : 20;
}

/// Three micro-batches of a pipeline's stage: F F B F B B.
std::vector<Visit> one_forward_one_backward() {
  std::vector<Visit> visits;
  for (const auto& [pass, microbatch] : {std::pair{VisitPass::forward, 0},
                                         {VisitPass::forward, 1},
                                         {VisitPass::backward, 0},
                                         {VisitPass::forward, 2},
                                         {VisitPass::backward, 1},
                                         {VisitPass::backward, 2}}) {
    for (const int unit : pass == VisitPass::forward ? small_forward : small_backward) {
      visits.push_back({unit, pass, microbatch});
    }
  }
  return visits;
}

/// Rows and options that between them use every kind of buffer.
std::vector<FsdpOptions> chaotic_options() {
  return {
      {.strategy = "zero3", .micro_steps = 2, .gradient_wire = DType::bf16},
      {.strategy = "hsdp", .hybrid_shard_degree = 2, .prefetch_units = 2, .micro_steps = 2},
      {.strategy = "hfsdp",
       .hybrid_shard_degree = 2,
       .reductions_in_flight = 2,
       .micro_steps = 2,
       .parameter_dtype = DType::bf16},
      {.strategy = "zero1", .gradient_wire = DType::f16},
      {.strategy = "zero2", .persistence_threshold = 100, .parameter_dtype = DType::f16},
      {.strategy = "hsdp",
       .hybrid_shard_degree = 2,
       .micro_steps = 2,
       .accumulate = Accumulate::local},
      {.strategy = "zero3", .visits = one_forward_one_backward(), .micro_steps = 3},
      {.strategy = "hsdp",
       .hybrid_shard_degree = 2,
       .visits = one_forward_one_backward(),
       .prefetch_units = 2,
       .reductions_in_flight = 2,
       .persistence_threshold = 100,
       .micro_steps = 3},
      {.strategy = "hfsdp",
       .hybrid_shard_degree = 2,
       .visits = plain_visits(small_tied_forward, small_tied_backward, 2),
       .persistence_threshold = 100,
       .micro_steps = 2},
      {.strategy = "ddp", .gradient_wire = DType::i8, .error_feedback = true},
      {.strategy = "zero3", .micro_steps = 2, .gradient_wire = DType::f8e5m2},
      {.strategy = "zero1", .parameter_wire = DType::f8e4m3, .gradient_wire = DType::i8},
      {.strategy = "hsdp",
       .hybrid_shard_degree = 2,
       .reductions_in_flight = 2,
       .parameter_dtype = DType::bf16,
       .parameter_wire = DType::i8,
       .gradient_wire = DType::f8e4m3},
      {.strategy = "hfsdp",
       .hybrid_shard_degree = 2,
       .micro_steps = 2,
       .parameter_wire = DType::i8,
       .gradient_wire = DType::i8},
  };
}

Job chaotic_job(const FsdpOptions& options) {
  Job job{.ranks = 4, .options = options, .steps = 2};
  if (std::ranges::count(options.visits, small_tied_forward.back(), &Visit::unit) != 0) {
    job.units = small_tied_units();
  }
  return job;
}

TEST(Chaos, late_collectives_and_poisoned_slots_do_not_change_bits) {
  const std::vector<FsdpOptions> all = chaotic_options();
  std::vector<Outcome> truths;
  for (const FsdpOptions& options : all) {
    truths.push_back(train(chaotic_job(options), noisy));
  }
  for (int seed = 0; seed < seeds(); ++seed) {
    const std::size_t which = static_cast<std::size_t>(seed) % all.size();
    Job job = chaotic_job(all[which]);
    job.evaluate = seed % 3 == 0;
    const Outcome outcome = train(job, noisy, chaos_queue(static_cast<std::uint64_t>(seed) + 1));
    expect_same_bits(outcome, truths[which],
                     "seed " + std::to_string(seed) + ", " + row_name(all[which]));
    if (HasFailure()) {
      return;
    }
  }
}

TEST(Chaos, a_unit_that_is_not_used_again_may_be_reduced_while_its_last_sum_is_under_way) {
  for (const char* row : {"zero2", "zero3", "hsdp", "hfsdp"}) {
    const int degree = std::string_view(row).starts_with("h") ? 2 : 0;
    Job job{.ranks = 4,
            .options = {.strategy = row, .hybrid_shard_degree = degree, .micro_steps = 2},
            .steps = 2,
            .used = [](int rank, int micro_step, int) { return rank == 1 || micro_step == 0; }};
    const Outcome truth = train(job, noisy);
    job.options.reductions_in_flight = 9;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      expect_same_bits(train(job, noisy, chaos_queue(seed)), truth, row);
    }
  }
}

/// What the engine must not do: use what it has not waited for. The queue and the poison show it.
TEST(Chaos, a_slot_given_back_too_early_is_found) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      const QueueKind kind = chaos_queue(seed);
      const auto queue = kind.make();
      memory::Arena arena({.slot = {0}, .bytes = {4096}}, kind.poisons_slots);
      std::vector<float> sum(1024, 0.0f);
      Pending pending;
      {
        memory::Lease lease = arena.take(0);
        const std::span<float> gradient(static_cast<float*>(lease.data()), 1024);
        std::ranges::fill(gradient, 1.0f);
        pending = queue->submit([&world, gradient, &sum] {
          return world.all_reduce(ConstElements(gradient.data(), gradient.size(), DType::f32),
                                  elements(sum));
        });
      }  // before the sum has ended: the mistake
      pending.wait();
      if (world.rank() == 0 && sum[0] != 2.0f) {
        ++found;
      }
    });
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace sprat::fsdp
