// Every rule speaks where it should and is silent where it should, and runs take what is written.
#include "planning/report.hpp"

#include <gtest/gtest.h>

#include <set>

#include "planning/advice.hpp"
#include "planning/trace_summary.hpp"
#include "sprat/error.hpp"
#include "sprat/smp.hpp"
#include "train/pipeline_plan.hpp"

namespace sprat::planning {
namespace {

constexpr const char* small_shape = "layers=6,width=512,heads=8,vocabulary=8192,positions=1024";

PlanRequest small_request(int hosts = 2) {
  return {.model = shape_from_words(small_shape),
          .machine = machine_from("p4d"),
          .hosts = hosts,
          .sequence = 1024,
          .batch_sequences = 128};
}

/// A request and a plan about which a rule has something to say.
struct Case {
  const char* rule;
  const char* words;
  PlanRequest request;
  Plan plan;
};

PlanRequest with_memory(double GiB_of_device) {
  PlanRequest request = small_request();
  request.machine.measured.memory_GiB = GiB_of_device;
  return request;
}

/// Between what this arrangement needs on as many hosts and on half of them.
PlanRequest just_enough_for_all_hosts(const Arrangement& a) {
  PlanRequest request = small_request();
  const double now = evaluate(request, a).memory.total();
  request.machine.measured.memory_GiB = now * 1.01 / GiB;
  return request;
}

PlanRequest on_cores() {
  PlanRequest request = small_request();
  request.machine = machine_from("c5n");
  return request;
}

PlanRequest four_a_host() {
  PlanRequest request = small_request();
  request.machine = machine_from("p4d,ranks=4");
  return request;
}

std::vector<Case> cases() {
  const Arrangement deep{.pipeline = 4, .microbatches = 2};
  const Arrangement sharded{.shards = 16, .strategy = "zero1", .microbatches = 8};
  PlanRequest wide = small_request();
  wide.batch_sequences = 16 * 16;
  PlanRequest wasteful = with_memory(40);
  PlanRequest wide_floats = small_request();
  wide_floats.precision = DType::f32;
  PlanRequest small_devices = small_request();
  small_devices.machine = machine_from("g5");
  const Plan offloaded =
      evaluate(small_request(), {.recompute = true, .offload = true, .microbatches = 8});
  const Plan cut = evaluate(small_request(), {.tensor = 8, .microbatches = 8});
  const DeviceMemory nearly_full{.parameters = 0.2 * GiB, .activations = 0.79 * GiB};
  PlanRequest short_rows = small_request();
  short_rows.sequence = 128;
  short_rows.batch_sequences = 16;
  return {
      {"order_of_techniques", "shard it first", small_request(), {.arrangement = deep}},
      {"less_technique", "it fits without offloading too", small_request(), offloaded},
      {"less_technique", "it fits without tensor ranks too", small_request(), cut},
      {"large_devices", "devices of 24 GiB", small_devices, {.arrangement = {.tensor = 2}}},
      {"larger_hosts_first", "have 4 devices each", four_a_host(), {}},
      {"group_checkpoints",
       "group_2 keeps half",
       with_memory(1),
       {.arrangement = {.recompute = true}, .memory = nearly_full}},
      {"smaller_batch_first",
       "by 8 samples at a time: lower the batch first, or take 2 micro-batches",
       with_memory(1),
       {.memory = nearly_full}},
      {"half_precision", "2.0 times as fast", wide_floats, {}},
      {"smallest_shard_degree",
       "hybrid_shard_degree 2 fits too",
       small_request(),
       {.arrangement = {.shards = 4, .strategy = "hsdp"}}},
      {"tensor_degree", "no power of two: take 2", small_request(), {.arrangement = {.tensor = 3}}},
      {"tensor_degree",
       "leaves the host, which has 8",
       small_request(),
       {.arrangement = {.tensor = 16}}},
      {"pipeline_across_hosts",
       "placement PDT",
       small_request(),
       {.arrangement = {.tensor = 2, .pipeline = 2}}},
      {"microbatches",
       "take 4",
       small_request(),
       {.arrangement = deep, .time = {.compute = 1, .bubble = 1}}},
      {"active_microbatches",
       "above 6",
       wasteful,
       {.arrangement = {.pipeline = 4, .microbatches = 8}, .time = {.compute = 1, .bubble = 1}}},
      {"prescaled_batch",
       "prescaled_batch true",
       small_request(),
       {.arrangement = {.tensor = 2, .pipeline = 2}}},
      {"offload_with_checkpointing",
       "no effect",
       small_request(),
       {.arrangement = {.offload = true}}},
      {"offload_with_checkpointing",
       "saves nothing",
       small_request(),
       {.arrangement = {.pipeline = 2, .recompute = true, .offload = true}}},
      {"downsizing",
       "on 1 hosts a device would need",
       just_enough_for_all_hosts(sharded),
       {.arrangement = sharded}},
      {"linear_scaling", "16 times the samples", small_request(), {}},
      {"batch_per_device", "a device computes 128 tokens", short_rows, {}},
      {"batch_normalisation", "a device has 1 samples", short_rows, {}},
      {"narrow_gradients",
       "send gradients as i8",
       small_request(),
       {.time = {.compute = 1, .gradients = 1}}},
      {"shorter_sequences",
       "a sequence shorter than 1024",
       with_memory(1),
       {.memory = nearly_full}},
      {"preprocessing",
       "reading takes 50 %",
       small_request(),
       {.time = {.compute = 1, .loader = 1}}},
      {"preprocessing", "cores that prepare data", on_cores(), {.time = {.compute = 1}}},
  };
}

TEST(PlanAdvice, every_rule_speaks_where_it_should) {
  std::set<std::string_view> met;
  for (const Case& one : cases()) {
    std::string told;
    for (const AdviceRule& rule : advice_rules()) {
      told += rule.name == one.rule ? rule.judge(one.request, one.plan) : "";
    }
    EXPECT_NE(told.find(one.words), std::string::npos) << one.rule << ": " << told;
    met.insert(one.rule);
  }
  EXPECT_EQ(met.size(), advice_rules().size());
}

TEST(PlanAdvice, every_rule_is_silent_where_all_is_as_advised) {
  PlanRequest request = small_request(1);
  request.machine.network.ranks = 1;  // one device: nothing is shared, nothing is sent
  const Plan plan = evaluate(request, {.microbatches = 8});
  for (const Advice& one : advice_on(request, plan)) {
    ADD_FAILURE() << one.rule << ": " << one.text;
  }
}

// As `sprat train` reads it, and spread over as many ranks.
TEST(PlanReports, sprat_train_takes_every_plan_that_is_told) {
  PlanRequest request = small_request(1);
  request.machine.network.ranks = 4;
  const SearchResult found = search(request, {}, 0.5);
  ASSERT_GT(found.plans.size(), 10u);
  for (const Plan& plan : found.plans) {
    const train::TrainConfig config =
        train::parse_train_config(train_json(request, plan, "text.txt"), "plan");
    EXPECT_NO_THROW(train::plan_pipeline(config, request.ranks()))
        << describe(request, plan.arrangement);
    EXPECT_EQ(config.pipeline.tensor_degree, plan.arrangement.tensor);
    EXPECT_EQ(config.sharding.micro_steps, plan.arrangement.microbatches);
    EXPECT_EQ(config.pipeline.activations.offload, plan.arrangement.offload);
  }
}

TEST(PlanReports, sprat_train_adds_in_the_order_that_was_planned) {
  PlanRequest request = small_request(1);
  request.wire = DType::f32;
  request.gradient_order = GradientOrder::tree;
  const SearchResult found = search(request);
  ASSERT_FALSE(found.plans.empty());
  const train::TrainConfig config =
      train::parse_train_config(train_json(request, found.plans.front(), "text.txt"), "plan");
  EXPECT_EQ(config.sharding.gradient_order, GradientOrder::tree);
  const std::string text = plan_text(request, found);
  EXPECT_NE(text.find("tree: the same bits on any ranks with "), std::string::npos) << text;
  EXPECT_THROW(smp_json(request, found.plans.front()), Error);
}

TEST(PlanReports, smp_takes_every_plan_that_is_made_for_it) {
  const PlanRequest request = small_request(1);
  const SearchResult found = search(request, {.smp_only = true}, 10);
  ASSERT_GT(found.plans.size(), 10u);
  for (const Plan& plan : found.plans) {
    EXPECT_NO_THROW(parse_smp_parameters(smp_json(request, plan)))
        << describe(request, plan.arrangement);
  }
}

TEST(PlanReports, what_a_configuration_cannot_say_is_refused) {
  const PlanRequest request = small_request();
  EXPECT_THROW(smp_json(request, {.arrangement = {.shards = 16, .strategy = "zero2"}}), Error);
  PlanRequest llama = request;
  llama.model = shape_from_words("llama2-7b");
  EXPECT_THROW(train_json(llama, {}, "text.txt"), Error);
}

TEST(PlanReports, tables_name_parts_assumptions_and_what_is_next) {
  PlanRequest request = small_request(1);
  request.machine.network.ranks = 2;
  const std::string text = plan_text(request, search(request));
  for (const char* words : {"strategy, hybrid_shard_degree", "optimizer state", "tokens/s",
                            "model flops utilisation", "(next best)", "(assumed;"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(PlanReports, a_trace_has_the_passes_of_every_stage_and_micro_batch) {
  const PlanRequest request = small_request();
  const Arrangement two_stages{.pipeline = 2, .microbatches = 4};
  const TraceFile trace = parse_trace(trace_of(request, two_stages), "plan");
  EXPECT_EQ(trace.slices.size(), 2u * 4 * 2);
  const TraceSummary summary = summarise(trace.slices);
  EXPECT_EQ(summary.ranks.size(), 2u);
  EXPECT_LE(summary.seconds, evaluate(request, two_stages).time.total() * (1 + 1e-6));
  EXPECT_GT(summary.idle, 0);
}

}  // namespace
}  // namespace sprat::planning
