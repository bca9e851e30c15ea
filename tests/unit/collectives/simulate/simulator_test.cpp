// The simulator against closed forms (alpha-beta), and what holds of every simulation.
#include "collectives/simulate/simulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <vector>

#include "collectives/plan/planner.hpp"
#include "collectives/simulate/cost_model.hpp"
#include "sprat/error.hpp"
#include "tests/unit/collectives/plan/problem_table.hpp"

namespace sprat::collectives {
namespace {

using ::testing::HasSubstr;

/// Round numbers: a byte takes 0.1 ns on a rail, 0.05 on a link, 0.025 to copy, 0.02 to add.
Machine test_machine(int rails) {
  return {.name = "test",
          .rails = rails,
          .rail_GBps = 10,
          .wire_us = 10,
          .message_us = 0.5,
          .pull_GBps = 20,
          .link_GBps = 20,
          .copy_GBps = 40,
          .add_GBps = 50,
          .signal_us = 1};
}

/// What closed forms are made of, in seconds.
struct Terms {
  int hosts = 1, per_host = 1;
  double wire = 10e-6, message = 0.5e-6, signal = 1e-6;
  double block = 0;  ///< Bytes of one block, the whole buffer where there is one.

  int ranks() const { return hosts * per_host; }
  double sent(double bytes) const { return message + bytes * 0.1e-9; }
  double pulled(double bytes) const { return bytes * 0.05e-9; }
  double copied(double bytes) const { return bytes * 0.025e-9; }
  double added(double bytes) const { return bytes * 0.02e-9; }
  /// The first byte on its way, then so many messages one after another.
  double sent_at_once(int messages, double bytes) const { return wire + messages * sent(bytes); }
  /// So many messages, each after the one before has come.
  double sent_in_turn(int messages, double bytes) const { return messages * (wire + sent(bytes)); }
  /// One source from another rank, `own` from this one's memory.
  double reduced(int pulls, int own, double bytes) const {
    return pulls * pulled(bytes) + own * copied(bytes) + (pulls + own - 1) * added(bytes);
  }
};

struct Form {
  const char* name;
  Collective collective;
  const char* algorithm;
  int hosts, per_host, rails;
  std::size_t count;  ///< Of f32.
  double (*seconds)(const Terms& t);
  double tolerance = 1e-9;  ///< 1 % where chunks follow each other.
};

constexpr std::size_t kibibyte = 1024;

const Form forms[] = {
    {"mesh_of_hosts", Collective::all_gather, "direct", 7, 1, 1, 16 * kibibyte,
     [](const Terms& t) { return t.sent_at_once(t.ranks() - 1, t.block); }},
    {"ranks_of_a_host_read_each_other", Collective::all_gather, "direct", 1, 6, 1, 16 * kibibyte,
     [](const Terms& t) {
       return std::max(t.signal, t.copied(t.block)) + (t.ranks() - 1) * t.pulled(t.block);
     }},
    {"two_levels_of_all_gather", Collective::all_gather, "hierarchical", 5, 4, 4, 16 * kibibyte,
     [](const Terms& t) {
       return t.sent_at_once(t.hosts - 1, t.block) + t.signal +
              (t.per_host - 1) * (t.hosts - 1) * t.pulled(t.block);
     }},
    {"ranks_share_one_rail", Collective::all_gather, "hierarchical", 5, 4, 1, 16 * kibibyte,
     [](const Terms& t) {
       return t.wire + t.per_host * (t.hosts - 1) * t.sent(t.block) + t.signal +
              (t.per_host - 1) * (t.hosts - 1) * t.pulled(t.block);
     }},
    {"messages_are_striped_over_three_rails", Collective::all_gather, "direct", 4, 1, 3,
     48 * kibibyte, [](const Terms& t) { return t.sent_at_once(t.ranks() - 1, t.block / 3); }},
    {"reduce_scatter_at_once", Collective::reduce_scatter, "direct", 8, 1, 1, 16 * kibibyte,
     [](const Terms& t) {
       return t.sent_at_once(t.ranks() - 1, t.block) + t.reduced(0, t.ranks(), t.block);
     }},
    {"mesh_all_reduce", Collective::all_reduce, "hierarchical", 8, 1, 1, 128 * kibibyte,
     [](const Terms& t) {
       const double slice = t.block / t.ranks();
       return 2 * t.sent_at_once(t.ranks() - 1, slice) + t.reduced(0, t.ranks(), slice);
     }},
    {"two_levels_of_all_reduce", Collective::all_reduce, "hierarchical", 4, 2, 2, 128 * kibibyte,
     [](const Terms& t) {
       const double slice = t.block / t.ranks();
       // Each partial but the first is reduced, in less time than a message takes, while the one
       // before it leaves.
       const double partial = t.reduced(t.per_host - 1, 1, slice);
       return t.signal + partial + 2 * t.sent_at_once(t.hosts - 1, slice) +
              t.reduced(t.per_host - 1, t.hosts, slice) + t.signal +
              t.hosts * (t.per_host - 1) * t.pulled(slice);
     }},
    {"all_reduce_on_a_host", Collective::all_reduce, "direct", 1, 4, 1, 64 * kibibyte,
     [](const Terms& t) {
       const double slice = t.block / t.ranks();
       return 2 * t.signal + t.reduced(t.ranks() - 1, 1, slice) + (t.ranks() - 1) * t.pulled(slice);
     }},
    {"one_shot", Collective::all_reduce, "one_shot", 6, 1, 1, 64,
     [](const Terms& t) {
       return t.sent_at_once(t.ranks() - 1, t.block) + t.reduced(0, t.ranks(), t.block);
     }},
    {"all_to_all_at_once", Collective::all_to_all, "direct", 9, 1, 1, 4 * kibibyte,
     [](const Terms& t) { return t.sent_at_once(t.ranks() - 1, t.block); }},
    {"many_send_to_one", Collective::gather, "direct", 9, 1, 1, 4 * kibibyte,
     [](const Terms& t) { return t.sent_at_once(t.ranks() - 1, t.block); }},
    {"one_sends_to_many", Collective::scatter, "direct", 9, 1, 1, 4 * kibibyte,
     [](const Terms& t) { return t.sent_at_once(t.ranks() - 1, t.block); }},
    {"readers_share_a_link", Collective::broadcast, "flat", 1, 5, 1, 64 * kibibyte,
     [](const Terms& t) { return t.signal + (t.ranks() - 1) * t.pulled(t.block); }},
    {"barrier_between_hosts", Collective::barrier, "dissemination", 13, 1, 1, 0,
     [](const Terms& t) {
       return t.sent_in_turn(std::bit_width(static_cast<unsigned>(t.hosts - 1)), 0);
     }},
    {"barrier_in_two_levels", Collective::barrier, "dissemination", 8, 4, 1, 0,
     [](const Terms& t) {
       return t.signal + t.sent_in_turn(std::bit_width(static_cast<unsigned>(t.hosts - 1)), 0) +
              t.signal;
     }},
    {"chain_in_chunks", Collective::broadcast, "chain", 6, 1, 1, 10'000 * kibibyte / 4,
     [](const Terms& t) {
       constexpr int chunks = 78;  // of at least 128 KiB
       const double chunk = t.block / chunks;
       return t.sent_in_turn(t.hosts - 1, chunk) + (chunks - 1) * t.sent(chunk);
     },
     0.01},
};

/// `per_host` consecutive ranks on each host.
Problem problem_on(Collective collective, int hosts, int per_host, std::size_t count) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * per_host; ++rank) {
    host_of.push_back(rank / per_host);
  }
  return {
      .collective = collective, .grouping = std::make_shared<Grouping>(host_of), .count = count};
}

class ClosedForms : public ::testing::TestWithParam<Form> {};

INSTANTIATE_TEST_SUITE_P(Each, ClosedForms, ::testing::ValuesIn(forms),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST_P(ClosedForms, hold) {
  const Form& form = GetParam();
  const Problem problem = problem_on(form.collective, form.hosts, form.per_host, form.count);
  const Simulation made =
      simulate(problem, *find_algorithm(form.collective, form.algorithm), test_machine(form.rails));
  const double expected = form.seconds({.hosts = form.hosts,
                                        .per_host = form.per_host,
                                        .block = static_cast<double>(form.count) * 4});
  EXPECT_NEAR(made.seconds, expected, expected * form.tolerance);
}

/// The lane in which a step works: its rank's core, which receives from its own host too, or a
/// direction of its messages to others.
int lane_of(const Span& span, const Grouping& grouping) {
  if (span.peer >= 0 && grouping.together(span.rank, span.peer)) {
    return 0;
  }
  return span.verb == Verb::send ? 1 : span.verb == Verb::recv ? 2 : 0;
}

class Simulated : public ::testing::TestWithParam<const Algorithm*> {};

INSTANTIATE_TEST_SUITE_P(Each, Simulated, ::testing::ValuesIn(all_algorithms()),
                         [](const auto& entry) {
                           return std::string(name(entry.param->collective)) + "_" +
                                  entry.param->name;
                         });

TEST_P(Simulated, lasts_at_least_as_long_as_any_of_its_parts_and_does_one_thing_at_a_time) {
  for_each_case(*GetParam(), [](const Case& c) {
    std::map<std::pair<int, int>, double> busy_until;
    const auto observe = [&](const Span& span) {
      double& until = busy_until[{span.rank, lane_of(span, *c.problem.grouping)}];
      EXPECT_GE(span.begin, until * (1 - 1e-12)) << c.label << ", rank " << span.rank;
      EXPECT_LE(span.begin, span.end) << c.label << ", rank " << span.rank;
      until = span.end;
    };
    const Simulation made = simulate(c.each, *GetParam(), test_machine(2), observe);
    EXPECT_GE(made.seconds, std::max({made.rail, made.link, made.core})) << c.label;
    for (const auto& [lane, until] : busy_until) {
      EXPECT_LE(until, made.seconds) << c.label << ", rank " << lane.first;
    }
  });
}

TEST(Simulator, lets_a_fast_link_serve_several_readers_at_once) {
  Machine machine = test_machine(1);
  machine.link_GBps = 4 * machine.pull_GBps;
  const Problem problem = problem_on(Collective::broadcast, 1, 5, 64 * kibibyte);
  const Terms t;
  const double expected = t.signal + t.pulled(64 * kibibyte * 4);
  EXPECT_NEAR(simulate(problem, *find_algorithm(Collective::broadcast, "flat"), machine).seconds,
              expected, expected * 1e-9);
}

TEST(Simulator, says_which_steps_wait_for_each_other) {
  const Algorithm stuck{
      .collective = Collective::barrier,
      .name = "stuck",
      .summary = "Everybody waits for the next rank.",
      .order = ReduceOrder::any,
      .fits = [](const Problem&) { return true; },
      .plan = [](const Problem& p, Plan& plan) { plan.wait((p.rank + 1) % p.ranks(), 1); },
      .cost = [](const Problem&) { return Cost{}; }};
  try {
    simulate(problem_on(Collective::barrier, 1, 2, 0), stuck, test_machine(1));
    FAIL() << "ended";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 0 of rank 0, wait"));
  }
}

TEST(Simulator, names_what_limits) {
  EXPECT_STREQ((Simulation{.seconds = 10, .rail = 9, .link = 1, .core = 2}.limit()), "rail");
  EXPECT_STREQ((Simulation{.seconds = 10, .rail = 1, .link = 4, .core = 2}.limit()), "link");
  EXPECT_STREQ((Simulation{.seconds = 10, .rail = 1, .link = 6, .core = 8}.limit()), "core");
  EXPECT_STREQ((Simulation{.seconds = 10, .rail = 2, .link = 2, .core = 0}.limit()), "latency");
}

TEST(CostModel, ranks_every_algorithm_that_fits_by_its_time) {
  const Problem problem = problem_on(Collective::all_gather, 4, 2, 64 * kibibyte);
  const std::vector<Candidate> candidates = by_speed(problem, test_machine(1));
  const auto fitting = std::ranges::count_if(all_algorithms(), [&](const Algorithm* algorithm) {
    return algorithm->collective == problem.collective && algorithm->fits(problem);
  });
  EXPECT_EQ(std::ssize(candidates), fitting);
  EXPECT_TRUE(std::ranges::is_sorted(
      candidates, {}, [](const Candidate& candidate) { return candidate.simulation.seconds; }));
}

TEST(CostModel, flat_ring_over_hosts_of_one_rank_passes_each_block_on_in_turn) {
  const Terms t{.hosts = 12};
  const double expected = t.sent_in_turn(t.hosts - 1, 16 * kibibyte * 4.0);
  const Problem problem = problem_on(Collective::all_gather, 12, 1, 16 * kibibyte);
  EXPECT_NEAR(flat_ring_seconds(problem, test_machine(1)).value(), expected, expected * 1e-9);
}

TEST(CostModel, flat_ring_crosses_each_host_once_in_a_pass) {
  const Machine machine = test_machine(2);
  const double slice = 64 * kibibyte * 4.0 / 8;
  const Terms t;
  const double expected =
      2 * (4 * (t.wire + t.message) + 3 * t.signal + 7 * slice * 0.05e-9) + 7 * t.added(slice);
  EXPECT_NEAR(
      flat_ring_seconds(problem_on(Collective::all_reduce, 4, 2, 64 * kibibyte), machine).value(),
      expected, expected * 1e-9);
  EXPECT_EQ(flat_ring_seconds(problem_on(Collective::broadcast, 4, 2, 1), machine), std::nullopt);
}

}  // namespace
}  // namespace sprat::collectives
