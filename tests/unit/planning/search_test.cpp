// Memory against the documents' bytes, and the search against trying everything.
#include "planning/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>

#include "sprat/error.hpp"

namespace sprat::planning {
namespace {

PlanRequest request_for(const char* model, const char* machine, int hosts, std::int64_t sequences,
                        std::int64_t sequence) {
  return {.model = shape_from_words(model),
          .machine = machine_from(machine),
          .hosts = hosts,
          .sequence = sequence,
          .batch_sequences = sequences};
}

/// One of SMP's reference configurations: GPT-2, sequences of 512, on p4d, each layer checkpointed.
/// Batches are of a model's tensor group, which reads the same samples.
struct Reference {
  const char* model;
  int hosts, tensor, pipeline, batch, microbatches;
};
constexpr Reference references[] = {
    {"gpt-10b", 16, 4, 1, 40, 1}, {"gpt-30b", 16, 8, 1, 32, 1}, {"gpt-60b", 32, 8, 2, 56, 4}};

Plan plan_of(const Reference& reference, const char* strategy) {
  PlanRequest request = request_for(reference.model, "p4d.24xlarge", reference.hosts, 1, 512);
  Arrangement a{.tensor = reference.tensor,
                .pipeline = reference.pipeline,
                .strategy = strategy,
                .recompute = true,
                .microbatches = reference.microbatches};
  const int data = data_ranks(request, a);
  request.batch_sequences = std::int64_t{data} * reference.batch;
  a.shards = a.strategy == "ddp" ? 1 : data;
  return evaluate(request, a);
}

TEST(PlanMemory, reference_configurations_fit_with_sharded_optimizer_state_alone) {
  const double room = machine_from("p4d").usable_bytes();
  for (const Reference& reference : references) {
    EXPECT_LE(plan_of(reference, "zero1").memory.total(), room) << reference.model;
    EXPECT_GT(plan_of(reference, "ddp").memory.total(), room) << reference.model;
  }
}

// docs/fsdp.md's table: bytes kept an element with parameters of 16 bits and AdamW.
TEST(PlanMemory, states_are_those_of_the_table) {
  const PlanRequest request =
      request_for("layers=4,width=1024,heads=8,vocabulary=32768", "p4d", 1, 64, 512);
  const double elements = parameter_count(request.model);
  constexpr int n = 8, s = 4;
  const std::vector<std::tuple<const char*, int, double>> rows = {
      {"ddp", 1, 18.0},       {"zero1", n, 6 + 12.0 / n}, {"zero2", n, 2 + 16.0 / n},
      {"zero3", n, 18.0 / n}, {"hsdp", s, 18.0 / s},      {"hfsdp", s, 6.0 / s + 12.0 / n}};
  for (const auto& [row, shards, bytes] : rows) {
    const DeviceMemory memory = evaluate(request, {.shards = shards, .strategy = row}).memory;
    // The head's own gradient, where it is tied to the embedding: 4 bytes, cut as the row cuts.
    const double head =
        1024.0 * 32768 * 4 *
        (std::string_view(row) == "ddp" || std::string_view(row) == "zero1" ? 1 : 1.0 / shards);
    EXPECT_NEAR(memory.parameters + memory.gradients + memory.optimizer, elements * bytes + head,
                0.01 * elements * bytes)
        << row;
  }
}

TEST(PlanMemory, a_few_microbatches_show_what_all_of_them_hold) {
  Rehearsals rehearsals(
      request_for("layers=14,width=256,heads=8,vocabulary=512", "p4d", 1, 64, 128));
  for (const int pipeline : {2, 3, 4, 8}) {
    const int shown =
        rehearsed_microbatches(rehearsals.request(), {.pipeline = pipeline, .microbatches = 64});
    for (int rank = 0; rank < pipeline; ++rank) {
      EXPECT_EQ(mp::most_microbatches_held(rehearsals.schedule(pipeline, shown), rank),
                mp::most_microbatches_held(rehearsals.schedule(pipeline, 64), rank))
          << pipeline << " stages, rank " << rank;
    }
  }
}

// The last stage has the logits and the most on its device, the first the most in the host's
// memory.
TEST(PlanMemory, what_is_offloaded_is_the_most_of_any_rank) {
  const PlanRequest request =
      request_for("layers=8,width=512,heads=8,vocabulary=131072", "p4d", 1, 64, 512);
  Rehearsals rehearsals(request);
  const Arrangement a{.pipeline = 4,
                      .shards = 2,
                      .strategy = "zero1",
                      .recompute = true,
                      .offload = true,
                      .microbatches = 16};
  double most = 0;
  for (int rank = 0; rank < a.pipeline; ++rank) {
    most = std::max(most, memory_of_rank(rehearsals, a, rank).offloaded);
  }
  EXPECT_GT(most, memory_of_rank(rehearsals, a, a.pipeline - 1).offloaded);
  EXPECT_EQ(memory_of(rehearsals, a, std::numeric_limits<double>::max()).offloaded, most);
}

/// In a rank's gradients of a step by the engine's own plan, with nothing left out.
double whole_plan_of_gradients(Rehearsals& rehearsals, const Arrangement& a, int rank) {
  const PlanRequest& request = rehearsals.request();
  fsdp::Visits order =
      units_of(rehearsals, a, rehearsals.stages(a.pipeline)[std::size_t(rank)],
               mp::computations_of(rehearsals.schedule(a.pipeline, a.microbatches), rank));
  order.micro_steps = a.microbatches;
  const std::vector<fsdp::Sharding> shardings(order.units.size(), sharding_of(request, a));
  return static_cast<double>(fsdp::plan_memory(fsdp::GatherSchedule(order).declared(), shardings,
                                               options_of(request, a, a.microbatches), 2)
                                 .memory.gradient_slots);
}

// What is not rehearsed is a sum of each unit for each doubling, to the byte.
TEST(PlanMemory, of_a_tree_is_that_of_the_engines_plan_for_all_micro_batches) {
  PlanRequest request =
      request_for("layers=14,width=256,heads=8,vocabulary=512", "p4d", 1, 1024, 128);
  request.wire = DType::f32;
  request.gradient_order = GradientOrder::tree;
  Rehearsals rehearsals(request);
  for (const auto& [pipeline, microbatches] : {std::pair{1, 1},
                                               {1, 2},
                                               {1, 4},
                                               {1, 32},
                                               {2, 4},
                                               {2, 8},
                                               {2, 64},
                                               {4, 16},
                                               {4, 64},
                                               {8, 128}}) {
    const int data = 8 / pipeline;
    for (const auto& [row, shards] : {std::pair{"ddp", 1}, {"zero1", data}, {"zero2", data}}) {
      if (data == 1 && shards == data && std::string_view(row) != "ddp") {
        continue;
      }
      const Arrangement a{
          .pipeline = pipeline, .shards = shards, .strategy = row, .microbatches = microbatches};
      ASSERT_EQ(refusal(request, a), "");
      for (int rank = 0; rank < pipeline; ++rank) {
        EXPECT_EQ(memory_of_rank(rehearsals, a, rank).gradient_buffers,
                  whole_plan_of_gradients(rehearsals, a, rank))
            << describe(request, a) << ", rank " << rank;
      }
    }
  }
}

// Rows that shard gradients sum over ranks once a step instead of in each micro-batch.
TEST(PlanCosts, of_a_tree_are_additions_and_memory_and_fewer_sums) {
  PlanRequest request =
      request_for("layers=4,width=1024,heads=8,vocabulary=32768", "g5,ranks=4", 2, 64, 512);
  request.wire = DType::f32;
  const Arrangement a{.shards = 8, .strategy = "zero2", .microbatches = 8};
  const Plan sequence = evaluate(request, a);
  request.gradient_order = GradientOrder::tree;
  const Plan tree = evaluate(request, a);
  EXPECT_EQ(sequence.time.additions, 0);
  // 7 of 8 gradients: 12 bytes an element, of which a copy moves 2 for each it counts.
  const double elements = parameter_count(request.model) + 1024.0 * 32768;
  EXPECT_NEAR(tree.time.additions, 7 * elements * 6 / request.machine.memory_bytes_per_s(),
              0.01 * tree.time.additions);
  EXPECT_LT(tree.time.parameters + tree.time.gradients,
            sequence.time.parameters + sequence.time.gradients);
  EXPECT_GT(tree.memory.gradient_buffers, sequence.memory.gradient_buffers);
}

/// Small machines with little memory, so that some arrangements fit and some do not.
struct Space {
  const char *model, *machine;
  int hosts;
  std::int64_t sequences, sequence;
  double memory_GiB;
};
constexpr const char* small = "layers=6,width=512,heads=8,vocabulary=8192,positions=1024";
constexpr Space spaces[] = {{small, "p4d,ranks=2", 1, 8, 512, 0.5},
                            {small, "p4d,ranks=4", 2, 16, 1024, 0.6},
                            {small, "g5,ranks=2", 4, 16, 1024, 0.4},
                            {small, "c5n,ranks=4", 2, 16, 1024, 0.5},
                            {small, "p5,ranks=2", 2, 32, 512, 0.3}};

TEST(PlanSearch, finds_the_optimum_of_every_small_space) {
  for (const Space& space : spaces) {
    PlanRequest request =
        request_for(space.model, space.machine, space.hosts, space.sequences, space.sequence);
    request.machine.measured.memory_GiB = space.memory_GiB;
    const SearchResult found = search(request);
    Rehearsals rehearsals(request);
    GroupCost groups(request.machine);
    double best = std::numeric_limits<double>::infinity();
    std::vector<double> times;
    for (const Arrangement& one : arrangements(request, {})) {
      const DeviceMemory memory = memory_of(rehearsals, one);
      EXPECT_LE(least_memory(rehearsals, one), memory.total()) << describe(request, one);
      const double seconds = time_of(rehearsals, groups, one).total();
      EXPECT_LE(least_time(rehearsals, groups, one), seconds) << describe(request, one);
      if (fits(request, memory)) {
        times.push_back(seconds);
        best = std::min(best, seconds);
      }
    }
    const auto within = std::ranges::count_if(
        times, [&](double seconds) { return seconds <= best * (1 + told_share); });
    ASSERT_FALSE(found.plans.empty()) << space.machine;
    EXPECT_EQ(found.plans.front().time.total(), best) << space.machine;
    EXPECT_EQ(static_cast<std::ptrdiff_t>(found.plans.size()), within) << space.machine;
    EXPECT_LT(times.size(), found.arrangements) << space.machine << ": something must not fit";
  }
}

TEST(PlanSearch, of_equal_plans_the_one_with_less_technique_is_first) {
  const PlanRequest request = request_for(small, "p4d,ranks=1", 1, 4, 512);
  const SearchResult found = search(request);
  ASSERT_FALSE(found.plans.empty());
  EXPECT_FALSE(found.plans.front().arrangement.recompute);
  EXPECT_EQ(found.plans.front().arrangement.strategy, "ddp");
}

TEST(PlanSearch, where_nothing_fits_it_tells_what_holds_least) {
  PlanRequest request = request_for("gpt-10b", "p4d", 1, 8, 512);
  request.machine.measured.memory_GiB = 1;
  const SearchResult found = search(request);
  EXPECT_TRUE(found.plans.empty());
  ASSERT_TRUE(found.smallest);
  EXPECT_GT(found.smallest->memory.total(), request.machine.usable_bytes());
}

std::string said_of(const PlanRequest& request, const Pins& pins) {
  try {
    search(request, pins);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PlanSearch, without_any_arrangement_it_says_which_wish_is_in_the_way) {
  const PlanRequest request = request_for(small, "p4d", 2, 16, 512);
  const std::vector<std::pair<Pins, const char*>> cases = {
      {{.tensor = 3}, "--tensor 3 goes with nothing else that was asked; what does: 1, 2, 4, 8"},
      {{.tensor = 16}, "--tensor 16 goes"},
      {{.pipeline = 16, .microbatches = 1}, "--pipeline 16 goes with nothing"},
      {{.microbatches = 17}, "--microbatches 17 goes"},
      {{.recompute = false, .offload = true},
       "--recompute false goes with nothing else that was "
       "asked; leave it out"},
      {{.tensor = 3, .pipeline = 3}, "has all of --tensor 3, --pipeline 3; leave some out"}};
  for (const auto& [pins, words] : cases) {
    EXPECT_NE(said_of(request, pins).find(words), std::string::npos) << said_of(request, pins);
  }
  // 7 sequences over hosts whose degrees are powers of two, of a model that is cut four times.
  const PlanRequest odd =
      request_for("layers=1,width=512,heads=2,vocabulary=8192", "p4d", 4, 7, 512);
  const std::string batch = said_of(odd, {});
  EXPECT_NE(batch.find("a batch of 7 sequences of 512 tokens is not dealt evenly to 32 ranks: give "
                       "a multiple of 16 sequences, as --batch-tokens 8192"),
            std::string::npos)
      << batch;
  PlanRequest mended = odd;
  mended.batch_sequences = 16;
  EXPECT_FALSE(search(mended).plans.empty());
}

TEST(PlanSearch, numbers_beyond_any_cluster_are_refused) {
  const auto with = [](auto change) {
    PlanRequest request = request_for(small, "p4d", 1, 8, 512);
    change(request);
    return said_of(request, {});
  };
  const auto contains = [](const std::string& text, const char* words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  contains(with([](PlanRequest& r) { r.hosts = 1 << 20; }), "1048576 hosts of 8 ranks");
  contains(with([](PlanRequest& r) { r.hosts = 0; }), "0 hosts of 8 ranks");
  contains(with([](PlanRequest& r) { r.machine.network.ranks = 1'000'000; }),
           "1000000 ranks a host");
  contains(with([](PlanRequest& r) { r.batch_sequences = -1; }), "a batch of -1 sequences");
  contains(with([](PlanRequest& r) { r.batch_sequences = 1ll << 40; }), "is --batch-tokens too");
  contains(with([](PlanRequest& r) { r.sequence = 1ll << 40; }), "a sequence of 1099511627776");
  // No device holds it, and no 64 bits count it.
  const PlanRequest vast = request_for(
      "layers=1,width=1,heads=1,vocabulary=1,inner=16777216,experts=1000000,experts_used=1000000",
      "p4d", 1, 1, 1ll << 32);
  const std::string told = said_of(vast, {.recompute = false});
  EXPECT_NE(told.find("a device would hold at least "), std::string::npos) << told;
}

TEST(PlanArrangements, degrees_that_do_not_divide_are_refused_with_their_numbers) {
  const PlanRequest request = request_for(small, "p4d", 2, 16, 512);
  const std::vector<std::pair<Arrangement, const char*>> refused = {
      {{.tensor = 3}, "T 3 x P 1 does not divide the 16 ranks"},
      {{.tensor = 16}, "does not divide the 8 ranks of a host"},
      {{.shards = 3, .strategy = "hsdp"}, "hybrid_shard_degree 3 does not divide the 16"},
      {{.shards = 2, .strategy = "zero3"}, "strategy zero3 has 2 shards on 16"},
      {{.offload = true}, "without activation checkpointing"},
      {{.microbatches = 3}, "is no multiple of 48"},
      {{.shards = 2, .context = 4, .strategy = "hsdp"}, "context_parallel_degree 4"},
      {{.tensor = 8, .shards = 2, .context = 4, .strategy = "zero3"}, "context_parallel_degree 4"}};
  for (const auto& [arrangement, words] : refused) {
    EXPECT_NE(refusal(request, arrangement).find(words), std::string::npos)
        << refusal(request, arrangement);
  }
  EXPECT_EQ(refusal(request, {}), "");
}

// T fastest, then P, then S: what lies inside of a host of eight.
// The documents' 60 B: 56 samples in 4 micro-batches are 14 at a time, no power of two.
TEST(PlanArrangements, of_a_tree_have_the_same_bits_on_any_ranks) {
  PlanRequest request = request_for(small, "p4d,ranks=6", 2, 48, 512);
  request.wire = DType::f32;
  request.gradient_order = GradientOrder::tree;
  for (const Arrangement& one : arrangements(request, {})) {
    ADD_FAILURE() << "12 ranks make no tree: " << describe(request, one);
  }
  request.machine = machine_from("p4d,ranks=4");
  const std::vector<Arrangement> all = arrangements(request, {});
  EXPECT_FALSE(all.empty());
  for (const Arrangement& one : all) {
    EXPECT_TRUE(one.context == 1 && one.microbatches != 3) << describe(request, one);
  }
  EXPECT_NE(refusal(request, {.microbatches = 3}).find("3 micro-batches are powers of two"),
            std::string::npos);
  request.wire = DType::bf16;
  EXPECT_NE(refusal(request, {}).find("travel as f32, not bf16"), std::string::npos);
}

TEST(PlanArrangements, a_number_of_micro_batches_that_is_named_is_tried) {
  const PlanRequest request =
      request_for("layers=4,width=1024,heads=8,vocabulary=32768", "p4d", 1, 56, 512);
  const std::vector<Arrangement> all =
      arrangements(request, {.tensor = 8, .pipeline = 1, .microbatches = 4});
  EXPECT_FALSE(all.empty());
  for (const Arrangement& one : all) {
    EXPECT_EQ(one.microbatches, 4) << describe(request, one);
  }
}

TEST(PlanArrangements, groups_lie_as_the_placement_says) {
  const PlanRequest request = request_for(small, "p4d", 4, 32, 512);
  Arrangement a{.tensor = 2, .pipeline = 2, .shards = 4, .strategy = "hsdp"};
  const auto together = [&](GroupAxis axis) { return place_of(request, a, axis).per_host; };
  EXPECT_EQ(together(GroupAxis::tensor), 2);
  EXPECT_EQ(together(GroupAxis::pipeline), 2);
  EXPECT_EQ(together(GroupAxis::shard), 2);
  EXPECT_EQ(together(GroupAxis::replica), 1);
  EXPECT_EQ(place_of(request, a, GroupAxis::shard).hosts, 2);
  a.placement = "PDT";
  EXPECT_EQ(together(GroupAxis::pipeline), 1);
  EXPECT_EQ(together(GroupAxis::shard), 4);
}

}  // namespace
}  // namespace sprat::planning
