// SMP's configuration: its table of keys, and what keys ask of each other.
#include "sprat/smp.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "tests/unit/comm/base/refused.hpp"

namespace sprat::smp_test {
namespace {

using Json = nlohmann::json;

/// What a key asks of others where it is not at its default.
Json company(const SmpKey& key) {
  const std::string name(key.name);
  Json beside = key.version == SmpVersion::v1 ? Json{{"ddp", false}} : Json{{"random_seed", 1}};
  if (key.version == SmpVersion::v2) {
    beside["hybrid_shard_degree"] = name == "context_parallel_degree" ? 1024 : 0;
  } else if (name == "auto_partition") {
    beside["default_partition"] = 0;
  } else if (name == "default_partition") {
    beside["pipeline_parallel_degree"] = 64;
  } else if (name == "tensor_parallel_degree") {
    beside["ddp"] = beside["prescaled_batch"] = true;
  } else if (name == "bf16") {
    beside["sharded_data_parallel_degree"] = 2;
  }
  return beside;
}

/// A legal value beside the default.
Json another(const SmpKey& key) {
  switch (key.kind) {
    case SmpKind::flag:
      return key.standard != SmpValue(true);
    case SmpKind::whole:
      return std::isfinite(key.least) ? key.least + 7 : 7.0;
    case SmpKind::number:
      return std::isfinite(key.most) ? 0.5 : 7.0;
    case SmpKind::word:
      return key.choices.empty() ? "some text" : key.choices.substr(key.choices.rfind(' ') + 1);
  }
  return nullptr;
}

std::vector<Json> illegal(const SmpKey& key) {
  std::vector<Json> wrong = {Json::array(), Json::object()};
  if (key.kind != SmpKind::flag) {
    wrong.emplace_back(true);
  }
  if (key.kind != SmpKind::word) {
    wrong.emplace_back("1");
  }
  if (key.kind == SmpKind::whole) {
    wrong.emplace_back(1.5);
    wrong.emplace_back(1e300);
  }
  if (std::isfinite(key.least)) {
    wrong.emplace_back(key.least - 1);
  }
  if (std::isfinite(key.most)) {
    wrong.emplace_back(key.most + 1);
  }
  if (!key.choices.empty()) {
    wrong.emplace_back("sideways");
    wrong.emplace_back(std::string(key.choices));
  }
  return wrong;
}

TEST(SmpKeys, each_version_names_a_key_once) {
  std::set<std::pair<SmpVersion, std::string_view>> seen;
  for (const SmpKey& key : smp_keys()) {
    EXPECT_TRUE(seen.emplace(key.version, key.name).second) << key.name;
    EXPECT_EQ(&smp_key(key.version, key.name), &key);
  }
  EXPECT_EQ(message_of([] { smp_key(SmpVersion::v2, "ddp"); }), "SMP v2 has no key \"ddp\"");
}

TEST(SmpKeys, each_legal_value_is_taken_and_only_served_ones_are_carried_out) {
  for (const SmpKey& key : smp_keys()) {
    Json given = company(key);
    given[std::string(key.name)] = another(key);
    const SmpParameters parameters = parse_smp_parameters(given.dump());
    EXPECT_EQ(parameters.version, key.version) << key.name;
    const std::string value = describe(parameters.values.find(key.name)->second);
    EXPECT_EQ(Json::parse(value), another(key)) << key.name;
    if (key.name == "default_partition") {
      continue;  // its company, more than one stage, is what is refused first
    }
    if (key.served) {
      require_served(parameters);
    } else {
      const std::string said = message_of([&] { require_served(parameters); });
      EXPECT_TRUE(said.starts_with(std::string(key.name) + " = " + value + " of SMP ")) << said;
      EXPECT_TRUE(said.ends_with(" is: " + std::string(key.how))) << said;
    }
  }
}

TEST(SmpKeys, each_illegal_value_is_refused_with_the_legal_ones) {
  for (const SmpKey& key : smp_keys()) {
    for (const Json& value : illegal(key)) {
      Json given = company(key);
      given[std::string(key.name)] = value;
      const std::string said = message_of([&] { parse_smp_parameters(given.dump()); });
      EXPECT_TRUE(said.starts_with(std::string(key.name) + " = " + value.dump() + " of SMP "))
          << said;
      EXPECT_NE(said.find(" must be " + legal_values(key)), std::string::npos) << said;
    }
  }
}

TEST(SmpKeys, each_default_may_be_given) {
  for (const SmpKey& key : smp_keys()) {
    const SmpParameters plain = parse_smp_parameters(company(key).dump());
    const SmpValue value = plain.values.find(key.name)->second;
    Json given = company(key);
    given[std::string(key.name)] =
        std::holds_alternative<std::monostate>(value) ? Json() : Json::parse(describe(value));
    if (key.name != "ddp_port" && key.name != "ddp_dist_backend") {
      EXPECT_EQ(parse_smp_parameters(given.dump()).values, plain.values) << key.name;
    }
  }
}

/// A row of the tables in docs/smp/configuration.md.
std::string documented_row(const SmpKey& key) {
  const std::string standard =
      key.follows.empty() ? describe(key.standard) : std::string(key.follows);
  const bool word = std::holds_alternative<std::string>(key.standard);
  return text("| `", key.name, "` | ", legal_values(key), " | ",
              word ? standard.substr(1, standard.size() - 2) : standard, " | ",
              key.served ? "yes" : "default only", " | ", key.how, " | ", key.source, " |\n");
}

TEST(SmpKeys, are_documented_in_this_order) {
  std::ifstream file(std::filesystem::path(SPRAT_SOURCE_DIR) / "docs/smp/configuration.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  for (const SmpVersion version : {SmpVersion::v2, SmpVersion::v1}) {
    std::string table = text("SMP ", name(version), R"(:

| key | values | default | served | what it does here, or what to do instead | source |
|---|---|---|---|---|---|
)");
    for (const SmpKey& key : smp_keys()) {
      table += key.version == version ? documented_row(key) : "";
    }
    EXPECT_NE(page.find(table + "\n"), std::string::npos) << table;
  }
}

TEST(SmpParameters, defaults_follow_from_other_keys) {
  const auto value = [](const char* json, const char* key) {
    return describe(parse_smp_parameters(json).values.at(key));
  };
  EXPECT_EQ(value(R"({"ddp": true})", "active_microbatches"), "3");
  EXPECT_EQ(value(R"({"partitions": 4})", "active_microbatches"), "6");
  EXPECT_EQ(value(R"({"partitions": 4})", "pipeline_parallel_degree"), "4");
  EXPECT_EQ(value(R"({"pipeline_parallel_degree": 4})", "partitions"), "4");
  EXPECT_EQ(value(R"({"ddp": true})", "memory_weight"), "0.8");
  EXPECT_EQ(value(R"({"optimize": "speed"})", "memory_weight"), "0.2");
  EXPECT_EQ(value(R"({"sdp_reduce_bucket_size": 5e8})", "sdp_reduce_bucket_size"), "500000000");
  EXPECT_EQ(value("{}", "hybrid_shard_degree"), "0");
}

TEST(SmpParameters, all_forms_of_one_configuration_agree) {
  const Json plain = {{"ddp", true}, {"partitions", 2}};
  const Json options = {{"enabled", true}, {"parameters", plain}};
  const std::vector<Json> forms = {
      plain,
      {{"parameters", plain}},
      options,
      {{"modelparallel", options}},
      {{"smdistributed", {{"modelparallel", options}}}, {"mpi", {{"enabled", true}}}},
  };
  for (const Json& form : forms) {
    EXPECT_EQ(parse_smp_parameters(form.dump()).values, parse_smp_parameters(plain.dump()).values)
        << form;
  }
}

TEST(SmpParameters, what_does_not_go_together_is_refused_in_a_sentence) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"partitions": 1, "pipeline_parallel_degree": 1})",
       "partitions and pipeline_parallel_degree are two names of one key: keep the second"},
      {R"({"auto_partition": false})",
       "auto_partition = false needs default_partition, which is missing"},
      {R"({"default_partition": 1})",
       "default_partition = 1 must be less than pipeline_parallel_degree = 1"},
      {R"({"ddp": true, "horovod": true})", "ddp and horovod are both true: keep ddp"},
      {R"({"ddp_port": 1234})", "ddp_port needs ddp, which is missing"},
      {R"({"ddp_dist_backend": "auto"})", "ddp_dist_backend needs ddp, which is missing"},
      {R"({"tensor_parallel_degree": 2, "prescaled_batch": true})",
       "tensor_parallel_degree = 2 needs ddp = true"},
      {R"({"sharded_data_parallel_degree": 2, "shard_optimizer_state": true})",
       "sharded_data_parallel_degree = 2 shards optimizer state already: remove "
       "shard_optimizer_state"},
      {R"({"bf16": true})", "bf16 needs sharded_data_parallel_degree above 1"},
      {R"({"hybrid_shard_degree": 2, "context_parallel_degree": 4})",
       "context_parallel_degree = 4 must be at most hybrid_shard_degree = 2"},
      {R"({"hybrid_shard_degree": 2, "microbatches": 1})",
       "keys of both generations of SMP: microbatches (v1) and hybrid_shard_degree (v2); keep "
       "those of one"},
      {R"({"hybrid_shard_degre": 2})",
       "\"hybrid_shard_degre\" is no configuration key: did you mean \"hybrid_shard_degree\"?"},
      {R"({"ddp": true, "ddp": false})", "ddp is given twice in the SMP configuration: keep one"},
      {R"({"smdistributed": {"modelparallel": {}}, "mpirun": {}})",
       "\"mpirun\" is no key in distribution: did you mean \"mpi\"?"},
      {R"({"smdistributed": {}})", "smdistributed has no modelparallel"},
      {R"({"smdistributed": {"dataparallel": {}}})",
       "\"dataparallel\" is no key in smdistributed: did you mean \"modelparallel\"?"},
      {R"({"parameters": 3})", "parameters = 3: it must be an object, {\"key\": value, ...}"},
      {R"({"enabled": false, "parameters": {}})",
       "modelparallel has enabled = false: set it to true, or leave this configuration out"},
      {"[1]", "the SMP configuration is JSON, but no object: it must be {\"key\": value, ...}"},
  };
  for (const auto& [given, message] : cases) {
    EXPECT_EQ(message_of([&, &json = given] { parse_smp_parameters(json); }), message);
  }
  EXPECT_TRUE(message_of([] {
                parse_smp_parameters("{");
              }).starts_with("the SMP configuration is not JSON: "));
  EXPECT_EQ(message_of([] { parse_smp_parameters(std::string(99, '[')); }),
            "the SMP configuration is nested too deeply");
}

TEST(SmpParameters, say_which_layout_they_mean) {
  const ParallelLayout v1(parallel_degrees(
      parse_smp_parameters(R"({"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2,
                               "ddp": true, "placement_strategy": "spread"})"),
      16));
  EXPECT_EQ(v1.degrees().placement, "TPD");
  EXPECT_EQ(v1.size(Axes::replica), 4);
  EXPECT_EQ(v1.size(Axes::pipeline), 2);
  const ParallelLayout v2(parallel_degrees(
      parse_smp_parameters(R"({"tensor_parallel_degree": 2, "context_parallel_degree": 2})"), 16));
  EXPECT_EQ(v2.size(Axes::shard), 8);  // degree 0: as large as it can be
  EXPECT_EQ(v2.data_shares(), 4);
  EXPECT_EQ(message_of([] {
              parallel_degrees(parse_smp_parameters(R"({"hybrid_shard_degree": 5e9})"), 8);
            }),
            "hybrid_shard_degree = 5000000000 is more than the 8 ranks of the world; it is at most "
            "that");
}

}  // namespace
}  // namespace sprat::smp_test
