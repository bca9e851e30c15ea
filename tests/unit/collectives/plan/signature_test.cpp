// What ranks must agree on, and what of it makes a plan.
#include "collectives/plan/signature.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace sprat::collectives {
namespace {

Problem reducing_problem(const Reduction& op) {
  return {.collective = Collective::all_reduce,
          .grouping = std::make_shared<const Grouping>(std::vector<int>{0, 0}),
          .count = 8,
          .op = op};
}

Reduction user(const char* name) {
  return Reduction::user({name, [](const void*, void*, std::size_t, DType) {}});
}

TEST(Signature, tells_factors_and_names_apart_that_share_a_plan) {
  const std::pair<Reduction, Reduction> pairs[] = {
      {Reduction::premultiplied_sum(0.5), Reduction::premultiplied_sum(-0.5)},
      {Reduction::premultiplied_sum(0.0), Reduction::premultiplied_sum(-0.0)},
      {user("left"), user("right")}};
  for (const auto& [one, other] : pairs) {
    const Problem a = reducing_problem(one), b = reducing_problem(other);
    EXPECT_NE(signature_of(a), signature_of(b)) << describe(one);
    EXPECT_EQ(signature_of(a), signature_of(a)) << describe(one);
    EXPECT_EQ(shape_of(a), shape_of(b)) << describe(one);
    EXPECT_NE(describe(a), describe(b));
  }
  EXPECT_NE(shape_of(reducing_problem(user("left"))), shape_of(reducing_problem(ReduceOp::sum)))
      << "partials of user operations have another type";
}

TEST(Signature, is_said_with_all_of_its_reduction) {
  EXPECT_EQ(describe(reducing_problem(Reduction::premultiplied_sum(0.25))),
            "all_reduce of 8 f32, premultiplied_sum by 0.25");
  EXPECT_EQ(describe(reducing_problem(user("norms"))), "all_reduce of 8 f32, user operation norms");
}

}  // namespace
}  // namespace sprat::collectives
