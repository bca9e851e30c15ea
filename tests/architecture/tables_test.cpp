// A folder with a table holds one file for each entry of the table, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "checkpoint/format.hpp"
#include "collectives/kernels/block_format.hpp"
#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/tuning.hpp"
#include "comm/transports/transport_kind.hpp"
#include "fsdp/optimizer.hpp"
#include "gemm/gemm_kind.hpp"
#include "io/formats/format.hpp"
#include "io/order/sampling.hpp"
#include "io/readers/reader.hpp"
#include "io/report/cause.hpp"
#include "io/report/rule.hpp"
#include "io/tier.hpp"
#include "io/tier_kind.hpp"
#include "mp/schedule.hpp"
#include "sprat/device.hpp"
#include "tests/architecture/source_tree.hpp"
#include "train/schedule.hpp"

namespace sprat::architecture {
namespace {

TEST(Tables, every_algorithm_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const collectives::Algorithm* algorithm : collectives::all_algorithms()) {
    names.push_back(std::string(name(algorithm->collective)) + "_" + algorithm->name);
  }
  EXPECT_TRUE(std::ranges::is_sorted(names)) << "the table is in the order of the files";
  std::ranges::sort(names);
  EXPECT_EQ(names, stems("collectives/algorithms", ".cpp"));
}

TEST(Tables, every_algorithm_is_chosen_by_a_default_rule) {
  const collectives::Rules rules = collectives::parse_rules(collectives::default_rules());
  for (const collectives::Algorithm* algorithm : collectives::all_algorithms()) {
    EXPECT_TRUE(std::ranges::any_of(
        rules, [&](const collectives::Rule& rule) { return rule.algorithm == algorithm; }))
        << name(algorithm->collective) << ' ' << algorithm->name;
  }
}

TEST(Tables, every_block_format_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const collectives::BlockFormat* format : collectives::all_block_formats()) {
    names.emplace_back(format->name);
  }
  EXPECT_EQ(names, stems("collectives/block_formats", ".cpp"));
}

TEST(Tables, every_kind_of_device_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const DeviceKind* kind : all_device_kinds()) {
    names.emplace_back(kind->name);
  }
  EXPECT_EQ(names, stems("device/kinds", ".cpp"));
}

TEST(Tables, every_optimizer_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const fsdp::OptimizerKind* kind : fsdp::all_optimizers()) {
    names.emplace_back(kind->name);
  }
  EXPECT_EQ(names, stems("fsdp/optimizers", ".cpp"));
}

TEST(Tables, every_checkpoint_format_is_a_file_named_for_it) {
  const std::vector<std::string> forms = {
#define SPRAT_CHECKPOINT_FORM(name) #name,
#include "sprat/checkpoint_forms.def"
  };
  std::vector<std::string> names;
  for (const fsdp::CheckpointFormat* format : fsdp::all_checkpoint_formats()) {
    names.emplace_back(format->name);
    std::ranges::replace(names.back(), '-', '_');
    EXPECT_EQ(names.back(), forms[names.size() - 1]) << "the form of that number is another row";
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, stems("checkpoint/formats", ".cpp"));
}

TEST(Tables, every_schedule_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const train::ScheduleKind* kind : train::all_schedules()) {
    names.emplace_back(kind->name);
  }
  EXPECT_EQ(names, stems("train/schedules", ".cpp"));
}

TEST(Tables, every_pipeline_schedule_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const mp::ScheduleKind* kind : mp::all_schedules()) {
    // No name of C++ begins with a digit.
    names.emplace_back(kind->name == "1f1b" ? "one_f_one_b" : kind->name);
  }
  EXPECT_EQ(names, stems("mp/schedules", ".cpp"));
}

TEST(Tables, every_gemm_backend_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const mp::GemmKind* kind : mp::all_gemm_kinds()) {
    names.emplace_back(kind->name);
  }
  EXPECT_EQ(names, stems("gemm/backends", ".cpp"));
}

TEST(Tables, every_format_is_a_file_named_for_it) {
  std::vector<std::string> names = {"formats"};  // the table itself
  for (const io::Format* format : io::formats()) {
    names.emplace_back(format->name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, stems("io/formats", ".cpp"));
}

TEST(Tables, every_tier_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const io::TierKind* kind : io::all_tier_kinds()) {
    names.emplace_back(kind->name);
  }
  EXPECT_EQ(names, stems("io/tiers", ".cpp"));
}

TEST(Tables, every_sampling_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const io::SamplingKind* kind : io::all_sampling_kinds()) {
    names.emplace_back(kind->name);
  }
  EXPECT_EQ(names, stems("io/order/samplings", ".cpp"));
}

TEST(Tables, every_reader_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const io::ReaderKind* kind : io::all_reader_kinds()) {
    names.emplace_back(kind->name);
  }
  std::ranges::sort(names);  // the table is in the order of preference
  EXPECT_EQ(names, stems("io/readers/kinds", ".cpp"));
}

TEST(Tables, every_cause_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const io::CauseKind* kind : io::cause_kinds()) {
    names.emplace_back(kind->name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, stems("io/report/causes", ".cpp"));
}

TEST(Tables, every_rule_is_a_file_named_for_it) {
  std::vector<std::string> names;
  for (const io::RuleKind* kind : io::rule_kinds()) {
    // Debugger writes LowGPUUtilization, and files low_gpu_utilization.
    std::string name(kind->name);
    name = std::regex_replace(name, std::regex("([A-Z])([A-Z][a-z])"), "$1_$2");
    name = std::regex_replace(name, std::regex("([a-z])([A-Z])"), "$1_$2");
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    names.push_back(name);
  }
  EXPECT_TRUE(std::ranges::is_sorted(names)) << "the table is in the order of the files";
  EXPECT_EQ(names, stems("io/report/rules", ".cpp"));
}

TEST(Tables, every_transport_is_a_folder_named_for_it) {
  std::vector<std::string> names, folders;
  for (const comm::TransportKind* kind : comm::all_transport_kinds()) {
    names.emplace_back(kind->name);
  }
  std::ranges::sort(names);
  for (const auto& entry : std::filesystem::directory_iterator(source_root() / "comm/transports")) {
    if (entry.is_directory()) {
      folders.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(folders);
  EXPECT_EQ(names, folders);
}

}  // namespace
}  // namespace sprat::architecture
