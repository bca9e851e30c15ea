// What models count, and what machines and measured lines say.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "collectives/plan/planner.hpp"
#include "collectives/simulate/simulator.hpp"
#include "planning/group_cost.hpp"
#include "sprat/error.hpp"
#include "train/model/gpt_block.hpp"

namespace sprat::planning {
namespace {

std::string refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The counts are those that the makers' checkpoints have.
TEST(ModelShapes, files_of_several_makers_have_their_published_counts) {
  const auto count = [](const char* json) {
    return parameter_count(shape_from_json(json, "config.json"));
  };
  EXPECT_EQ(count(R"({"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
                      "n_positions": 1024})"),
            124439808);
  EXPECT_EQ(count(R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
                      "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
                      "hidden_act": "silu", "tie_word_embeddings": false})"),
            6738415616);
  EXPECT_EQ(count(R"({"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
                      "intermediate_size": 14336, "hidden_act": "silu", "num_local_experts": 8,
                      "num_experts_per_tok": 2})"),
            46702792704);
  // Heads that do not share the width: Mistral-Nemo-Base-2407.
  EXPECT_EQ(count(R"({"model_type": "mistral", "num_hidden_layers": 40, "hidden_size": 5120,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                      "intermediate_size": 14336, "vocab_size": 131072, "hidden_act": "silu",
                      "tie_word_embeddings": false})"),
            12247782400);
  // Qwen3-30B-A3B has gains of queries and keys, too: 256 a block.
  EXPECT_EQ(count(R"({"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048,
                      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
                      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
                      "num_experts_per_tok": 8, "vocab_size": 151936, "hidden_act": "silu",
                      "mlp_only_layers": [], "tie_word_embeddings": false})"),
            30532122624 - 48 * 256);
}

TEST(ModelShapes, unknown_families_are_said_to_be_assumed) {
  const char* keys = R"("num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
                        "vocab_size": 100})";
  const auto assumed = [&](const std::string& type) {
    return shape_from_json("{\"model_type\": \"" + type + "\", " + keys, "c.json").assumed;
  };
  EXPECT_EQ(assumed("llama"), "");
  EXPECT_NE(assumed("falcon").find("model_type is none of gpt2, "), std::string::npos);
  // Not even a name may speak to a terminal.
  const std::string json = R"({"model_type": "a\u001b[2Jb", )" + std::string(keys);
  EXPECT_EQ(shape_from_json(json, "c.json").name, "a?[2Jb");
}

TEST(ModelShapes, reference_sizes_are_what_they_are_called) {
  const std::vector<std::pair<const char*, double>> sizes = {
      {"gpt-10b", 10e9},   {"gpt-30b", 30e9},    {"gpt-60b", 60e9},
      {"gpt-175b", 175e9}, {"llama2-7b", 6.7e9}, {"llama2-70b", 69e9}};
  EXPECT_EQ(sizes.size(), known_shapes().size());
  for (const auto& [name, parameters] : sizes) {
    EXPECT_NEAR(parameter_count(shape_from_words(name)) / parameters, 1, 0.02) << name;
  }
}

TEST(ModelShapes, what_is_no_model_is_refused_by_its_key) {
  EXPECT_NE(refused([] { shape_from_words("layers=4,width=x"); }).find("\"width=x\""),
            std::string::npos);
  EXPECT_NE(refused([] { shape_from_words("layer=4"); }).find("sets none of"), std::string::npos);
  EXPECT_NE(refused([] {
              shape_from_words("layers=4,width=30,heads=4,vocabulary=9");
            }).find("width 30 is not a multiple of heads 4"),
            std::string::npos);
  EXPECT_NE(refused([] { shape_from_json("{}", "c.json"); }).find("c.json: num_hidden_layers"),
            std::string::npos);
  EXPECT_NE(refused([] {
              shape_from_json(R"({"model_type": 7, "num_hidden_layers": "x"})", "c.json");
            }).find("num_hidden_layers is \"x\""),
            std::string::npos);
  EXPECT_NE(refused([] { shape_from_json("[]", "c.json"); }).find("no JSON object"),
            std::string::npos);
}

TEST(ModelShapes, files_that_say_something_else_are_refused_by_what_they_say) {
  const auto said = [](const std::string& json) {
    return refused([&] { shape_from_json(json, "c.json"); });
  };
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "c.json: it is empty"},
      {R"({"hidden_size": 4)", "c.json: it ends amid JSON at byte 17"},
      {R"({"hidden_size": x})", "c.json: it is no JSON from byte 17 of 18 on"},
      {R"({"hidden_size": 1e999})", "c.json: it has a number that is too large"},
      {R"({"text_config": {"hidden_size": 64}})", "write what \"text_config\" holds to a file"},
      {R"({"num_hidden_layers": 18446744073709551615})",
       "num_hidden_layers is 18446744073709551615"},
      {R"({"num_hidden_layers": 2.5})", "num_hidden_layers is 2.5; it is a whole number"},
      {R"({"num_hidden_layers": )" + deep + "}", "num_hidden_layers is a list"},
      {R"({"kv_lora_rank": 512})", "kv_lora_rank is 512, and the plan counts a decoder"},
      {R"({"is_encoder_decoder": true})", "is_encoder_decoder is true"},
      {R"({"num_hidden_layers": 0, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9})",
       "c.json: layers is 0; it is from 1 to 1024"}};
  for (const auto& [json, words] : cases) {
    EXPECT_NE(said(json).find(words), std::string::npos) << words << "\n" << said(json);
  }
}

TEST(ModelShapes, numbers_beyond_any_model_are_refused) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"layers=0,width=8,heads=1,vocabulary=9", "layers is 0"},
      {"layers=1025,width=8,heads=1,vocabulary=9", "layers is 1025; it is from 1 to 1024"},
      {"layers=1,width=8,heads=1,vocabulary=9,inner=-1", "inner is -1"},
      {"layers=1,width=8,heads=1,vocabulary=9,kv_heads=-2", "kv_heads is -2"},
      {"layers=1,width=8,heads=1,vocabulary=9,positions=-1", "positions is -1"},
      {"layers=1,width=8,heads=1,vocabulary=9,experts=2,experts_used=3", "experts_used is 3"},
      {"layers=1,width=8,heads=1,vocabulary=99999999999999999999", "is no NAME=NUMBER"},
      {"layers=nan,width=8,heads=1,vocabulary=9", "\"layers=nan\" is no NAME=NUMBER"},
      {"layers=1000,width=1000000,heads=1,vocabulary=9", "these are 1.2e+16 parameters"},
      {"layers=1,width=65536,heads=1,vocabulary=9,experts=16777216",
       "the plan counts up to 1e+15"}};
  for (const auto& [words, said] : cases) {
    const std::string told = refused([&] { shape_from_words(words); });
    EXPECT_NE(told.find(said), std::string::npos) << words << "\n" << told;
  }
}

// The trainer's own count of what a block keeps, in f32, for every tensor degree.
TEST(ModelShapes, a_blocks_tape_is_the_trainers) {
  const train::GptShape gpt{
      .layers = 2, .width = 256, .heads = 8, .context = 128, .vocabulary = 256};
  ModelShape shape{.name = "", .layers = 2, .width = 256, .heads = 8, .vocabulary = 256};
  shape.positions = 128;
  constexpr int rows = 512;
  for (const int tensor : {1, 2, 4}) {
    const train::GptPlacement placement{.tensor = {.degree = tensor, .sequence_parallel = true}};
    const train::GptExtents extents = train::extents_of(gpt, placement, rows);
    // Of the trainer's the input is a storage of its own.
    const double theirs = static_cast<double>(train::block_tape_count(extents)) * sizeof(float) +
                          static_cast<double>(extents.own_rows * gpt.width) * sizeof(float);
    const double ours = layer_costs(shape, 128, DType::f32, tensor)[1].tape_bytes * rows;
    // Inside attention and MLP the trainer has all rows of what the norms wrote.
    EXPECT_NEAR(ours / theirs, 1, tensor == 1 ? 0.02 : 0.25) << tensor;
  }
}

TEST(PlanMachines, every_machine_of_the_simulator_has_a_device) {
  for (const collectives::Machine& machine : collectives::all_machines()) {
    const TrainingMachine whole = machine_from(machine.name);
    EXPECT_GT(whole.usable_bytes(), 0) << machine.name;
    EXPECT_GT(whole.flops(DType::bf16), 0) << machine.name;
  }
  EXPECT_EQ(collectives::all_machines().size(), all_devices().size());
}

TEST(PlanMachines, names_may_have_sizes_and_changes) {
  EXPECT_EQ(machine_from("p4d.24xlarge").network.name, "p4d");
  EXPECT_EQ(machine_from("p5.48xlarge,rails=4").network.rails, 4);
  EXPECT_EQ(machine_from("p5,ranks=1,rails=1").device.host_memory_GiB, 256) << "p5.4xlarge";
  EXPECT_NE(refused([] { machine_from("p9.large"); }).find("no machine \"p9\""), std::string::npos);
  EXPECT_EQ(machine_from("ml.p4d.24xlarge").network.name, "p4d");
  EXPECT_NE(refused([] { machine_from("p5.4xlarge"); }).find("the table, which has p5.48xlarge"),
            std::string::npos);
}

TEST(PlanCalibration, a_line_goes_through_measured_times) {
  const Calibration rates = parse_calibration(
      "{\"gemm_flops\": 5e10, \"layer_overhead_us\": 20}\n\n"
      R"({"collective": "all_gather", "bytes": 1000000, "ranks": 2, "time_us": {"median": 110}})"
      "\n"
      R"({"collective": "all_gather", "bytes": 2000000, "ranks": 2, "time_us": {"median": 210}})"
      "\n"
      R"({"collective": "sendrecv", "bytes": 8, "ranks": 2, "time_us": {"median": 1}})",
      "rates");
  EXPECT_EQ(rates.flops, 5e10);
  EXPECT_NEAR(rates.layer_overhead_s, 20e-6, 1e-12);
  ASSERT_EQ(rates.collectives.size(), 1u);
  EXPECT_NEAR(rates.collectives[0].seconds, 10e-6, 1e-9);
  EXPECT_NEAR(rates.collectives[0].seconds_per_byte, 1e-10, 1e-14);
  TrainingMachine machine = machine_from("p4d");
  machine.measured = rates;
  GroupCost groups(machine);
  const GroupPlace two{.ranks = 2, .per_host = 2, .hosts = 1};
  EXPECT_NEAR(groups.seconds(collectives::Collective::all_gather, two, 3e6), 310e-6, 1e-9);
}

// Rounding leaves something of what is nothing, and a slope of it would be anything.
TEST(PlanCalibration, one_size_alone_gives_no_slope) {
  for (const double bytes : {1e6, 3e6, 12345678.0, 1048576.0}) {
    for (int median = 1; median < 1000; median += 7) {
      const std::string row = R"({"collective": "all_gather", "ranks": 2, "bytes": )" +
                              std::to_string(static_cast<std::int64_t>(bytes)) +
                              R"(, "time_us": {"median": )" + std::to_string(median) + "}}\n";
      const Calibration rates = parse_calibration(row + row + row, "rates");
      ASSERT_EQ(rates.collectives.size(), 1u);
      ASSERT_EQ(rates.collectives[0].seconds_per_byte, 0) << row;
      ASSERT_NEAR(rates.collectives[0].seconds, median * 1e-6, 1e-12) << row;
    }
  }
}

TEST(PlanCalibration, what_is_no_rate_is_refused_by_line_and_key) {
  EXPECT_NE(refused([] { parse_calibration("{\"flops\": 1}", "r"); }).find("r line 1: \"flops\""),
            std::string::npos);
  EXPECT_NE(refused([] { parse_calibration("\n{\"gemm_flops\": -1}", "r"); }).find("r line 2"),
            std::string::npos);
  EXPECT_NE(refused([] {
              parse_calibration("{\"collective\": 7, \"bytes\": \"x\"}", "r");
            }).find("r line 1 has no bytes"),
            std::string::npos);
  EXPECT_NE(refused([] { parse_calibration("half", "r"); }).find("no JSON object"),
            std::string::npos);
  EXPECT_NE(refused([] {
              parse_calibration("{\"gemm_flops\": " + std::string(1'000'000, '[') +
                                    std::string(1'000'000, ']') + "}",
                                "r");
            }).find("gemm_flops is a list"),
            std::string::npos);
  for (const char* ranks : {"0", "-1", "1e30", "2.5"}) {
    const std::string row = std::string(R"({"collective": "all_gather", "bytes": 8, "ranks": )") +
                            ranks + R"(, "time_us": {"median": 1}})";
    EXPECT_NE(refused([&] { parse_calibration(row, "r"); }).find("r line 1: ranks is "),
              std::string::npos)
        << ranks;
  }
}

// Beyond what is simulated times grow by doublings of hosts: all of which have wires.
TEST(PlanCosts, hosts_of_many_ranks_grow_as_their_wires_do) {
  GroupCost groups(machine_from("c5n"));
  const auto seconds = [&](int hosts) {
    return groups.seconds(collectives::Collective::all_gather,
                          {.ranks = 36 * hosts, .per_host = 36, .hosts = hosts}, 512.0 * (1 << 20));
  };
  // A host has (h - 1) / h of the bytes from others.
  EXPECT_LT(seconds(16), seconds(2) * 1.2 * (15.0 / 16) / (1.0 / 2));
  EXPECT_GE(seconds(16), seconds(4));
}

// What is said of groups that are not simulated, against a simulation of one.
TEST(PlanCosts, large_groups_take_what_their_simulation_takes) {
  constexpr int hosts = 256;
  GroupCost groups(machine_from("p4d"));
  const GroupPlace place{.ranks = hosts, .per_host = 1, .hosts = hosts, .groups_per_host = 4};
  constexpr double bytes = 512.0 * (1 << 20);
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts; ++rank) {
    host_of.push_back(rank);
  }
  collectives::Machine one = machine_from("p4d").network;
  one.rails = 1;
  one.rail_GBps *= TrainingMachine::wire_share;
  const collectives::Problem problem{
      .collective = collectives::Collective::all_gather,
      .grouping = std::make_shared<collectives::Grouping>(host_of),
      .count = static_cast<std::size_t>(bytes) / sizeof(float) / hosts};
  const auto& algorithm = collectives::choose(
      problem, collectives::parse_rules(collectives::default_rules(), "default"));
  const double simulated = collectives::simulate(problem, algorithm, one).seconds;
  EXPECT_NEAR(groups.seconds(collectives::Collective::all_gather, place, bytes) / simulated, 1,
              0.05);
}

}  // namespace
}  // namespace sprat::planning
