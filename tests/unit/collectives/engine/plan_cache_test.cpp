// Of calls with block counts of their own, the same one again is not planned again; any other is.
#include "collectives/engine/plan_cache.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/plan/tuning.hpp"
#include "sprat/config.hpp"

namespace sprat::collectives {
namespace {

std::shared_ptr<const BlockCounts> counts_of(std::vector<std::size_t> counts) {
  return std::make_shared<const BlockCounts>(std::move(counts));
}

Problem uneven_exchange() {
  Problem problem;
  problem.collective = Collective::all_to_allv;
  problem.rank = 1;
  problem.grouping = std::make_shared<const Grouping>(std::vector<int>{0, 0, 0});
  problem.counts = counts_of({5, 3, 7});
  problem.out_counts = counts_of({2, 3, 1});
  problem.count = 7;
  return problem;
}

struct Other {
  std::string what;
  std::function<void(Problem&)> change;
};

class PlansOfUnevenCalls : public testing::TestWithParam<Other> {};

TEST_P(PlansOfUnevenCalls, are_made_anew_for_any_other_call) {
  PlanCache plans(std::make_shared<const Rules>(rules_of({})));
  const Problem first = uneven_exchange();
  const std::shared_ptr<const Plan> plan = plans.of(first)->plan;
  Problem again = first;
  again.counts = counts_of({5, 3, 7});
  again.out_counts = counts_of({2, 3, 1});
  EXPECT_EQ(plans.of(again)->plan, plan) << "the same call, of other objects";

  Problem other = first;
  GetParam().change(other);
  const std::shared_ptr<const Plan> planned = plans.of(other)->plan;
  EXPECT_NE(planned, plan);
  EXPECT_EQ(plans.of(other)->plan, planned);
  EXPECT_NE(plans.of(first)->plan, planned);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, PlansOfUnevenCalls,
    testing::Values(Other{"counts",
                          [](Problem& p) {
                            p.counts = counts_of({5, 7, 3});
                          }},
                    Other{"out_counts",
                          [](Problem& p) {
                            p.out_counts = counts_of({1, 3, 2});
                          }},
                    Other{"dtype", [](Problem& p) { p.input = p.output = DType::bf16; }},
                    Other{"collective",
                          [](Problem& p) {
                            p.collective = Collective::all_gather;
                            p.out_counts = nullptr;
                          }},
                    Other{"reduction",
                          [](Problem& p) {
                            p.collective = Collective::reduce_scatter;
                            p.out_counts = nullptr;
                          }},
                    Other{"gatherv_root",
                          [](Problem& p) {
                            p.collective = Collective::gatherv;
                            p.root = 1;
                            p.out_counts = nullptr;
                          }},
                    Other{"gatherv_of_another_root",
                          [](Problem& p) {
                            p.collective = Collective::gatherv;
                            p.root = 2;
                            p.count = 3;
                            p.counts = p.out_counts = nullptr;
                          }}),
    [](const auto& info) { return info.param.what; });

}  // namespace
}  // namespace sprat::collectives
