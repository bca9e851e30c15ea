// The equivalence lattice: every row of the placement table trains with the same bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/train/small_text.hpp"
#include "train/train.hpp"

namespace sprat::train {
namespace {

constexpr int ranks = 8, steps = 20;

/// What all rows are to agree on: precision and accumulation, as keys of the section train.
struct Form {
  const char* name;
  const char* keys;
  friend void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }
};

class Lattice : public testing::TestWithParam<Form> {
 protected:
  Lattice() { write_small_text(folder_ / "text.txt"); }

  /// Each step's loss and gradient norm, every bit.
  std::vector<std::string> train(const std::string& parallel, int on = ranks,
                                 const std::string& keys = "") const {
    const auto path = folder_ / "config.json", report = folder_ / "report.jsonl";
    std::ofstream(path) << R"({"model": {"layers": 2, "width": 32, "heads": 2, "context": 16},
        "data": {"files": ["text.txt"]}, "parallel": {)"
                        << parallel << R"(},
        "train": {"learning_rate": 0.01, "validate_every": 0, "sample_bytes": 0, "batch": 16,
                  "steps": )"
                        << steps << GetParam().keys << keys << "}}";
    testing::internal::CaptureStdout();
    run_virtual_ranks(on, Config{}, [&](Communicator& world) {
      run(world, {.config = path, .steps = steps, .report = report.string()});
    });
    testing::internal::GetCapturedStdout();
    std::vector<std::string> lines;
    std::ifstream file(report);
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      lines.push_back(record.at("loss_hex").get<std::string>() + " " +
                      record.at("grad_norm").dump());
    }
    return lines;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_P(Lattice, every_row_and_degree_gives_the_same_bits) {
  const auto reference = train(R"("strategy": "ddp")");
  ASSERT_EQ(reference.size(), static_cast<std::size_t>(steps));
  for (const char* parallel :
       {R"("strategy": "zero1")", R"("strategy": "zero2")", R"("strategy": "zero3")",
        R"("strategy": "hsdp", "hybrid_shard_degree": 2)",
        R"("strategy": "hsdp", "hybrid_shard_degree": 4)",
        R"("strategy": "hfsdp", "hybrid_shard_degree": 2)",
        R"("strategy": "hfsdp", "hybrid_shard_degree": 4)",
        R"("strategy": "hsdp", "hybrid_shard_degree": 2, "prefetch_units": 3,
           "reductions_in_flight": 2)"}) {
    EXPECT_EQ(train(parallel), reference) << parallel;
  }
}

// Two-hop accumulation is not among them: it adds micro-steps after the first sum, so its bits
// depend on the degree.
INSTANTIATE_TEST_SUITE_P(
    Of, Lattice,
    testing::Values(Form{"f32", ""},
                    Form{"local_accumulation", R"(, "micro_steps": 2, "accumulate": "local")"},
                    Form{"bf16_wire", R"(, "precision": {"gradient_wire": "bf16"})"},
                    Form{"f16_wire", R"(, "precision": {"gradient_wire": "f16"})"},
                    Form{"bf16_parameters",
                         R"(, "precision": {"parameters": "bf16", "stochastic_rounding": true})"},
                    Form{"sgd", R"(, "optimizer": {"name": "sgd"})"},
                    Form{"lion", R"(, "optimizer": {"name": "lion", "weight_decay": 0.1})"}),
    [](const auto& form) { return std::string(form.param.name); });

class SharedLattice : public Lattice {};

TEST_P(SharedLattice, of_a_tree_ranks_and_micro_steps_matter_by_their_product_alone) {
  struct Row {
    int ranks;
    const char* keys;
  };
  for (const int threshold : {0, 100}) {
    const std::string tree =
        R"("gradient_order": "tree", "persistence_threshold": )" + std::to_string(threshold);
    const auto reference = train(tree, 1, R"(, "micro_steps": 8)");
    ASSERT_EQ(reference.size(), static_cast<std::size_t>(steps));
    for (const auto& [on, keys] :
         {Row{2, R"("strategy": "zero3")"}, Row{4, R"("strategy": "zero1")"},
          Row{4, R"("strategy": "hsdp", "hybrid_shard_degree": 2)"}, Row{8, R"("strategy": "ddp")"},
          Row{8, R"("strategy": "zero3", "prefetch_units": 2)"},
          Row{8, R"("strategy": "hfsdp", "hybrid_shard_degree": 4)"}}) {
      const std::string micro_steps = R"(, "micro_steps": )" + std::to_string(8 / on);
      EXPECT_EQ(train(tree + ", " + keys, on, micro_steps), reference)
          << on << " ranks, " << keys << ", threshold " << threshold;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, SharedLattice,
    testing::Values(Form{"f32", ""},
                    Form{"bf16_parameters",
                         R"(, "precision": {"parameters": "bf16", "stochastic_rounding": true})"}),
    [](const auto& form) { return std::string(form.param.name); });

}  // namespace
}  // namespace sprat::train
