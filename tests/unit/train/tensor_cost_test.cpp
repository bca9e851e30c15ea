// What cutting layers costs in messages, and who is warned of it.
#include "train/tensor_cost.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sprat::train {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TrainConfig tensor_config(const std::string& parallel) {
  return parse_train_config(R"({"model": {"layers": 4, "width": 16, "heads": 4, "context": 16},
      "data": {"files": ["a"]}, "train": {"batch": 32}, "parallel": {)" +
                                parallel + "}}",
                            "test.json");
}

TEST(TensorCost, is_four_all_reduces_a_block_or_five_where_rows_are_dealt) {
  constexpr int rows = 64;
  constexpr double all_reduce = 4.0 * rows * 16;  // of two ranks each sends as much as it has
  constexpr double loss = 4.0 * rows * 3;
  const auto sent = [&](const std::string& optimize, const char* more = "") {
    const TrainConfig config = tensor_config(R"("tensor_parallel_degree": 2, "microbatches": 2,
                                                "optimize": ")" +
                                             optimize + '"' + more);
    return tensor_traffic(config, plan_pipeline(config, 2), 0, rows).sent(2);
  };
  EXPECT_EQ(sent("speed"), 2 * ((4 * 4 + 2) * all_reduce + loss));
  // Embedding and head together are a pair of layers that are cut, as a block has two.
  EXPECT_EQ(sent("memory"), 2 * ((4 * 5 + 2.5) * all_reduce + loss));
  // Of tokens and targets each rank sends its half.
  EXPECT_EQ(sent("memory", R"(, "prescaled_batch": false)"), sent("memory") + 2 * rows * 4.0);
}

TEST(TensorCost, is_told_where_a_group_reaches_over_hosts_alone) {
  const TrainConfig config = tensor_config(R"("tensor_parallel_degree": 2)");
  const PipelinePlan plan = plan_pipeline(config, 4);
  EXPECT_EQ(tensor_warning(config, plan, std::vector{0, 0, 1, 1}), std::nullopt);
  const auto warning = tensor_warning(config, plan, std::vector{0, 1, 1, 1});
  ASSERT_TRUE(warning.has_value());
  EXPECT_THAT(*warning, HasSubstr("parallel.tensor_parallel_degree 2 makes groups of ranks of "
                                  "several hosts, each of which sends "));
}

TEST(TensorCost, comes_with_what_stays_within_hosts) {
  const auto warning = [](const std::string& keys, const std::vector<int>& hosts) {
    const TrainConfig config = tensor_config(keys);
    const auto ranks = static_cast<int>(hosts.size());
    return tensor_warning(config, plan_pipeline(config, ranks), hosts).value_or("none");
  };
  const std::string four = R"("tensor_parallel_degree": 4)";
  const std::string two_spread = R"("tensor_parallel_degree": 2, "placement_strategy": "spread")";
  EXPECT_THAT(warning(four, {0, 0, 1, 1}),
              EndsWith("take a degree that divides 2, of which every host's ranks are a multiple, "
                       "and parallel.placement_strategy \"cluster\""));
  EXPECT_THAT(warning(four, {0, 0, 0, 0, 0, 0, 1, 1}), HasSubstr("a degree that divides 2, of"));
  EXPECT_THAT(warning(four, {0, 1, 1, 1}),
              EndsWith("give every host a multiple of 4 ranks and parallel.placement_strategy "
                       "\"cluster\""));
  EXPECT_THAT(warning(two_spread, {0, 0, 1, 1}),
              EndsWith("take parallel.placement_strategy \"cluster\", which places the ranks of a "
                       "group next to each other"));
}

}  // namespace
}  // namespace sprat::train
