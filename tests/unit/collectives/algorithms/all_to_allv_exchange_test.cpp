// Which messages of an all-to-all of uneven blocks wait for which.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/planner.hpp"

namespace sprat::collectives {
namespace {

constexpr std::size_t long_block = 128 * 1024 / sizeof(float);

/// By peer: the peer whose message a send goes behind, -1 for none. Of rank 0.
std::vector<int> peers_waited_for(const std::vector<int>& hosts,
                                  const std::vector<std::size_t>& sent,
                                  const std::vector<std::size_t>& received) {
  const Problem problem{.collective = Collective::all_to_allv,
                        .rank = 0,
                        .grouping = std::make_shared<Grouping>(hosts),
                        .count = long_block,
                        .counts = std::make_shared<BlockCounts>(sent),
                        .out_counts = std::make_shared<BlockCounts>(received)};
  const Plan plan = make_plan(problem, *find_algorithm(Collective::all_to_allv, "exchange"));
  std::vector<int> waited(hosts.size(), -1);
  for (const Step& step : plan.steps) {
    if (step.verb == Verb::send && step.behind.first < step.behind.last) {
      EXPECT_EQ(step.behind.last - step.behind.first, 1U);
      waited[static_cast<std::size_t>(step.peer)] = plan.steps[step.behind.first].peer;
    }
  }
  return waited;
}

TEST(AllToAllvExchange, long_messages_between_hosts_take_turns) {
  const std::vector<std::size_t> equal(4, long_block);
  EXPECT_EQ(peers_waited_for({0, 1, 2, 3}, equal, equal), (std::vector<int>{-1, -1, 3, 2}));
}

TEST(AllToAllvExchange, short_messages_do_not) {
  const std::vector<std::size_t> equal(4, long_block - 1);
  EXPECT_EQ(peers_waited_for({0, 1, 2, 3}, equal, equal), (std::vector<int>{-1, -1, -1, -1}));
}

TEST(AllToAllvExchange, nobody_waits_for_more_than_it_sends_meanwhile) {
  const std::vector<std::size_t> sent(4, long_block);
  EXPECT_EQ(
      peers_waited_for({0, 1, 2, 3}, sent, {long_block, long_block, long_block, long_block + 1}),
      (std::vector<int>{-1, -1, -1, 2}));
}

TEST(AllToAllvExchange, nobody_waits_for_or_in_a_message_within_a_host) {
  const std::vector<std::size_t> equal(4, long_block);
  EXPECT_EQ(peers_waited_for({0, 1, 2, 0}, equal, equal), (std::vector<int>{-1, -1, -1, -1}));
  EXPECT_EQ(peers_waited_for({0, 1, 0, 2}, equal, equal), (std::vector<int>{-1, -1, -1, -1}));
}

}  // namespace
}  // namespace sprat::collectives
