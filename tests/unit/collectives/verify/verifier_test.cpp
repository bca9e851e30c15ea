// The verifier sees what breaks a plan: each test breaks right plans in one way and expects
// complaints.
#include "collectives/verify/verifier.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "collectives/plan/planner.hpp"
#include "tests/unit/collectives/plan/problem_table.hpp"

namespace sprat::collectives {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int ranks = 6;

struct Specimen {
  Problem problem;
  std::vector<Plan> plans;
  bool in_place = false;
  std::string label;
};

/// Every algorithm on one host, two halves and three uneven hosts, in place where that can be.
std::vector<Specimen> specimens() {
  std::vector<Specimen> out;
  for (const Algorithm* algorithm : all_algorithms()) {
    for (std::size_t placement : {0, 2, 3}) {
      Problem problem;
      problem.collective = algorithm->collective;
      problem.grouping = place(placements()[placement], ranks);
      problem.count = algorithm->collective == Collective::barrier     ? 0
                      : algorithm->collective == Collective::broadcast ? 300'000
                                                                       : 64 * ranks + 3;
      if (!algorithm->fits(problem)) {
        continue;
      }
      out.push_back({problem, make_plans(problem, *algorithm), may_alias(problem),
                     std::string(name(algorithm->collective)) + " " + algorithm->name + ", " +
                         placements()[placement].name});
    }
  }
  return out;
}

using Violations = std::vector<std::string>;

/// Changes a plan at one of its steps; false if there is nothing to change there.
using Mutation = std::function<bool(int rank, Plan&, Step&)>;

/// Mutates each step of each plan in turn, on a copy, and expects complaints of each change. How
/// many there were.
int expect_caught(const Specimen& specimen, const Mutation& mutate) {
  int changes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t index = 0; index < specimen.plans[rank].steps.size(); ++index) {
      std::vector<Plan> plans = specimen.plans;
      if (!mutate(rank, plans[rank], plans[rank].steps[index])) {
        continue;
      }
      ++changes;
      EXPECT_THAT(verify(specimen.problem, plans, specimen.in_place), Not(IsEmpty()))
          << specimen.label << ", rank " << rank << " step " << index << " of\n"
          << describe(plans[rank]);
    }
  }
  return changes;
}

int expect_all_caught(const Mutation& mutate) {
  int changes = 0;
  for (const Specimen& specimen : specimens()) {
    changes += expect_caught(specimen, mutate);
  }
  return changes;
}

/// Makes the step do nothing, at its place.
void erase(int rank, Step& step) {
  const IndexRange after = step.after;
  step = {};
  step.verb = Verb::copy;
  step.after = after;
  step.from = step.to = {.rank = rank, .buffer = Buffer::scratch};
}

TEST(Verifier, accepts_the_specimens) {
  for (const Specimen& specimen : specimens()) {
    EXPECT_THAT(verify(specimen.problem, specimen.plans, specimen.in_place), IsEmpty())
        << specimen.label;
  }
}

TEST(Verifier, catches_a_read_that_does_not_wait_for_its_peer) {
  EXPECT_GT(expect_all_caught([](int, Plan&, Step& step) {
              const bool waits = step.needs > 0;
              step.needs -= waits ? 1 : 0;
              return waits;
            }),
            200);
}

TEST(Verifier, catches_exchanged_sources) {
  EXPECT_GT(expect_all_caught([](int, Plan& plan, Step& step) {
              // Contributions in another order are right in plans of any.
              if (plan.order == ReduceOrder::any) {
                return false;
              }
              if (step.sources.last - step.sources.first < 2) {
                return false;
              }
              std::swap(plan.sources[step.sources.first].from,
                        plan.sources[step.sources.last - 1].from);
              return true;
            }),
            50);
}

TEST(Verifier, catches_sources_out_of_order) {
  EXPECT_GT(expect_all_caught([](int, Plan& plan, Step& step) {
              if (step.sources.last - step.sources.first < 2) {
                return false;
              }
              std::swap(plan.sources[step.sources.first], plan.sources[step.sources.last - 1]);
              return true;
            }),
            50);
}

TEST(Verifier, catches_any_missing_message_share_signal_or_transfer) {
  EXPECT_GT(expect_all_caught([](int rank, Plan&, Step& step) {
              // In place, a rank's own copy moves nothing; a last signal may be for nobody.
              const bool idle = step.verb == Verb::copy && step.from.rank == step.to.rank;
              if (idle || step.verb == Verb::signal) {
                return false;
              }
              erase(rank, step);
              return true;
            }),
            300);
}

TEST(Verifier, catches_wrong_offsets) {
  EXPECT_GT(expect_all_caught([](int, Plan&, Step& step) {
              if (step.to.count < 2 || step.verb == Verb::reduce) {
                return false;
              }
              if (step.from.rank == step.to.rank && step.verb == Verb::copy) {
                return false;
              }
              step.to.offset += 1;
              step.to.count -= 1;
              if (step.verb == Verb::copy) {
                step.from.count -= 1;
              }
              return true;
            }),
            100);
}

TEST(Verifier, catches_wrong_blocks) {
  EXPECT_GT(expect_all_caught([](int, Plan&, Step& step) {
              const bool reads = step.verb == Verb::copy || step.verb == Verb::send;
              if (!reads || step.from.count == 0 || step.from.buffer == Buffer::scratch) {
                return false;
              }
              if (step.from.rank == step.to.rank && step.verb == Verb::copy) {
                return false;
              }
              step.from.block += 1;
              return true;
            }),
            100);
}

TEST(Verifier, catches_a_signal_given_too_early) {
  // On one host: over several, messages may order what the signal no longer does.
  int changes = 0;
  for (const Specimen& specimen : specimens()) {
    if (specimen.problem.grouping->hosts() > 1) {
      continue;
    }
    changes += expect_caught(specimen, [](int, Plan&, Step& step) {
      const bool late = step.verb == Verb::signal && step.after.first < step.after.last;
      step.after = {};
      return late;
    });
  }
  EXPECT_GT(changes, 40);
}

TEST(Verifier, catches_messages_that_pass_each_other) {
  EXPECT_GT(expect_all_caught([](int, Plan&, Step& step) {
              if (step.verb != Verb::recv) {
                return false;
              }
              step.message += 1;
              return true;
            }),
            50);
}

/// all_reduce one_shot over `specimen` ranks on one host.
Specimen one_shot() {
  Problem problem;
  problem.collective = Collective::all_reduce;
  problem.grouping = place(placements()[0], ranks);
  problem.count = 5;
  const Algorithm& algorithm = *find_algorithm(Collective::all_reduce, "one_shot");
  return {problem, make_plans(problem, algorithm), true, "one_shot"};
}

TEST(Verifier, catches_an_input_overwritten_while_peers_read_it) {
  Specimen specimen = one_shot();
  for (Plan& plan : specimen.plans) {
    plan.steps[0].snapshot = false;
  }
  EXPECT_THAT(verify(specimen.problem, specimen.plans, false), IsEmpty());
  EXPECT_THAT(verify(specimen.problem, specimen.plans, true),
              Contains(HasSubstr("at the same time")));
}

TEST(Verifier, catches_another_association) {
  Specimen specimen = one_shot();
  // Rank 0 adds ranks 2 and 3 first as a partial that takes them in the wrong places.
  Plan plan(specimen.problem);
  plan.share_snapshot(input_of(specimen.problem, 0));
  plan.signal();
  plan.next_round();
  std::vector<Source> terms;
  for (int rank : {0, 2, 1, 3, 4, 5}) {
    const int place = static_cast<int>(terms.size());
    terms.push_back({.from = input_of(specimen.problem, rank), .covers = {place, place + 1}});
  }
  plan.reduce(terms, output_of(specimen.problem, 0), 1);
  specimen.plans[0] = plan;
  const Violations violations = verify(specimen.problem, specimen.plans, false);
  ASSERT_EQ(violations.size(), 1);
  EXPECT_THAT(violations[0], HasSubstr("result(((0[0]+2[0])+(1[0]+3[0]))+(4[0]+5[0]))"));
  EXPECT_THAT(violations[0], HasSubstr("not result(((0[0]+1[0])+(2[0]+3[0]))+(4[0]+5[0]))"));
}

/// One-shot plans in any order, of which rank 0's takes the contributions in this one.
Violations complaints_of_order(const std::vector<int>& order) {
  Specimen specimen = one_shot();
  for (Plan& plan : specimen.plans) {
    plan.order = ReduceOrder::any;
  }
  Plan& plan = specimen.plans[0];
  for (int place = 0; place < ranks; ++place) {
    plan.sources[place].from = input_of(specimen.problem, order[place]);
  }
  return verify(specimen.problem, specimen.plans, false);
}

TEST(Verifier, wants_each_contribution_once_where_any_order_is_right) {
  EXPECT_THAT(complaints_of_order({4, 2, 1, 3, 0, 5}), IsEmpty());
  EXPECT_THAT(
      complaints_of_order({0, 1, 2, 3, 4, 4}),
      Contains(HasSubstr("rank 0 ends with result(((0[0]+1[0])+(2[0]+3[0]))+(4[0]+4[0]))")));
}

TEST(Verifier, catches_partials_of_another_length_than_they_say) {
  for (const bool exchanged : {false, true}) {
    Specimen specimen = one_shot();
    const Problem& problem = specimen.problem;
    Plan plan(problem);
    plan.share_snapshot(input_of(problem, 0));
    plan.signal();
    plan.next_round();
    const Operand own = plan.scratch(problem.count), others = plan.scratch(problem.count);
    std::vector<Source> terms;
    for (int place = 0; place + 1 < ranks; ++place) {
      terms.push_back({.from = input_of(problem, place + 1), .covers = {place, place + 1}});
    }
    plan.reduce(terms, others, 1);
    plan.reduce(std::vector<Source>{{.from = input_of(problem, 0), .covers = {0, 1}}}, own);
    plan.next_round();
    terms = {{.from = others, .covers = {0, ranks - 1}},
             {.from = own, .covers = {ranks - 1, ranks}}};
    if (exchanged) {
      std::swap(terms[0].from, terms[1].from);
    }
    plan.reduce(terms, output_of(problem, 0));
    specimen.plans[0] = plan;
    for (Plan& each : specimen.plans) {
      each.order = ReduceOrder::any;
    }
    const Violations violations = verify(problem, specimen.plans, false);
    if (exchanged) {
      EXPECT_THAT(violations, Contains(HasSubstr("takes 0[0] for the partial of 5 ranks")));
    } else {
      EXPECT_THAT(violations, IsEmpty());
    }
  }
}

/// A reduction of two ranks on two hosts: rank 0 gets rank 1's contribution and finishes. `change`
/// sees what it is about to add to rank 0's plan.
Violations complaints_of_contribution(
    const std::function<void(Plan&, Operand& arrived, std::vector<Source>&)>& change) {
  Problem problem;
  problem.collective = Collective::reduce;
  problem.grouping = place(placements()[1], 2);
  problem.count = 5;
  problem.input = problem.output = DType::bf16;
  std::vector<Plan> plans = make_plans(problem, *find_algorithm(Collective::reduce, "direct"));
  Plan& plan = plans[0] = Plan(problem);
  Operand arrived = plan.room_for({1, 2}, problem.count);
  std::vector<Source> terms = {{.from = input_of(problem, 0), .covers = {0, 1}},
                               {.from = arrived, .covers = {1, 2}}};
  change(plan, arrived, terms);
  plan.recv(1, arrived);
  plan.next_round();
  plan.reduce(terms, output_of(problem, 0));
  return verify(problem, plans, false);
}

TEST(Verifier, catches_contributions_that_are_none) {
  EXPECT_THAT(complaints_of_contribution([](Plan&, Operand&, std::vector<Source>&) {}), IsEmpty());
  EXPECT_THAT(
      complaints_of_contribution([](Plan& plan, Operand& arrived, std::vector<Source>&) {
        arrived = plan.scratch(arrived.count);
      }),
      Contains("rank 0 step 0 (recv) expects 5 f32 where rank 1 step 0 (send) sends 5 bf16"));
  EXPECT_THAT(complaints_of_contribution([](Plan& plan, Operand&, std::vector<Source>& terms) {
                terms[1].from = plan.scratch(terms[1].from.count);
              }),
              Contains(HasSubstr("reads what nobody has written")));
  EXPECT_THAT(complaints_of_contribution([](Plan&, Operand& arrived, std::vector<Source>& terms) {
                terms = {{.from = arrived, .covers = {0, 2}}};
              }),
              Contains("rank 0 step 1 (reduce) takes a partial from contributions"));
  EXPECT_THAT(
      complaints_of_contribution([](Plan& plan, Operand& arrived, std::vector<Source>& terms) {
        plan.reduce(terms, arrived);
      }),
      Contains("rank 0 step 0 (reduce) reduces to contributions, which are single ranks'"));
  EXPECT_THAT(complaints_of_contribution(
                  [](Plan& plan, Operand& arrived, std::vector<Source>&) { plan.share(arrived); }),
              Contains("rank 0 step 0 (share) shares contributions, which always are"));
}

TEST(Verifier, catches_a_partial_kept_as_a_contribution) {
  // f32 partials and contributions are of one type: here only their values tell them apart.
  Problem problem;
  problem.collective = Collective::reduce;
  problem.grouping = place(placements()[2], 4);
  problem.count = 5;
  std::vector<Plan> plans =
      make_plans(problem, *find_algorithm(Collective::reduce, "hierarchical"));
  for (Step& step : plans[0].steps) {
    if (step.verb == Verb::recv) {
      step.to = plans[0].room_for({2, 3}, problem.count);
    }
  }
  EXPECT_THAT(verify(problem, plans, false),
              Contains(HasSubstr("keeps (2[0]+3[0]) as one rank's contribution")));
}

TEST(Verifier, catches_sends_that_wait_for_each_other) {
  Problem problem;
  problem.collective = Collective::all_gather;
  problem.grouping = place(placements()[1], 2);
  problem.count = 5;
  std::vector<Plan> plans;
  for (problem.rank = 0; problem.rank < 2; ++problem.rank) {
    const int peer = 1 - problem.rank;
    Plan& plan = plans.emplace_back(problem);
    plan.copy(input_of(problem, problem.rank), output_of(problem, problem.rank, problem.rank));
    plan.next_round();
    plan.send(peer, input_of(problem, problem.rank));
    plan.next_round();
    plan.recv(peer, output_of(problem, problem.rank, peer));
  }
  EXPECT_THAT(verify(problem, plans, false), Contains("rank 1 step 2 (recv) never runs"));
}

TEST(Verifier, catches_a_barrier_that_lets_a_rank_through) {
  for (const Specimen& specimen : specimens()) {
    if (specimen.problem.collective != Collective::barrier) {
      continue;
    }
    std::vector<Plan> plans = specimen.plans;
    std::erase_if(plans[5].steps, [](const Step& step) { return step.verb == Verb::wait; });
    for (Step& step : plans[5].steps) {
      step.after = {};
    }
    EXPECT_THAT(verify(specimen.problem, plans, false),
                Contains(HasSubstr("rank 5 leaves before rank")))
        << specimen.label;
  }
}

TEST(Verifier, names_the_rule_that_a_step_breaks) {
  const auto complaint = [](const std::function<void(Step&)>& change) {
    Specimen specimen = one_shot();
    change(specimen.plans[2].steps[2]);
    return verify(specimen.problem, specimen.plans, false);
  };
  EXPECT_THAT(complaint([](Step& step) { step.to.rank = 1; }),
              Contains("rank 2 step 2 (reduce) writes memory of rank 1"));
  EXPECT_THAT(complaint([](Step& step) { step.to.buffer = Buffer::input; }),
              Contains("rank 2 step 2 (reduce) writes its input"));
  EXPECT_THAT(complaint([](Step& step) { step.sources.last -= 1; }),
              Contains("rank 2 step 2 (reduce) completes 0..5 only"));
  EXPECT_THAT(complaint([](Step& step) { step.to.count = 6; }),
              Contains("rank 2 step 2 (reduce) reaches 0+6 in a block of 5"));
  EXPECT_THAT(complaint([](Step& step) { step.after.last = 3; }),
              Contains("rank 2 step 2 (reduce) depends on itself"));
}

}  // namespace
}  // namespace sprat::collectives
