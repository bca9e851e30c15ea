// Every host asks once, somebody who knows, in few rounds and over few others.
#include "comm/timeline/clock_rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

namespace sprat::comm::timeline {
namespace {

using Rounds = std::vector<std::vector<ClockQuestion>>;

/// By host: 0 for rank 0's, 1 for those that ask it.
std::vector<int> hops_of(const Rounds& rounds, int hosts) {
  std::vector<int> hops(static_cast<std::size_t>(hosts), 0);
  for (const auto& round : rounds) {
    for (const ClockQuestion& question : round) {
      hops[std::size_t(question.asks)] = hops[std::size_t(question.answers)] + 1;
    }
  }
  return hops;
}

TEST(ClockRounds, every_host_asks_once_who_knows_and_is_in_one_question_at_a_time) {
  for (int hosts = 1; hosts <= 900; hosts += hosts < 100 ? 1 : 97) {
    std::set<int> known = {0};
    for (const auto& round : clock_rounds(hosts)) {
      std::set<int> busy;
      for (const ClockQuestion& question : round) {
        ASSERT_TRUE(known.contains(question.answers)) << hosts << " hosts";
        ASSERT_FALSE(known.contains(question.asks)) << hosts << " hosts";
        ASSERT_TRUE(busy.insert(question.answers).second) << hosts << " hosts";
        ASSERT_TRUE(busy.insert(question.asks).second) << hosts << " hosts";
      }
      known.merge(busy);
    }
    ASSERT_EQ(known.size(), std::size_t(hosts));
    ASSERT_TRUE(*known.begin() == 0 && *known.rbegin() == hosts - 1);
  }
}

TEST(ClockRounds, are_few_and_flat) {
  struct Case {
    int hosts;
    std::size_t rounds;
    int hops;
  };
  for (const Case& one : {Case{1, 0, 0}, Case{2, 1, 1}, Case{9, 8, 1}, Case{10, 4, 2},
                          Case{81, 13, 2}, Case{82, 8, 3}, Case{512, 15, 3}, Case{4096, 19, 4}}) {
    const Rounds rounds = clock_rounds(one.hosts);
    EXPECT_EQ(rounds.size(), one.rounds) << one.hosts << " hosts";
    EXPECT_EQ(std::ranges::max(hops_of(rounds, one.hosts)), one.hops) << one.hosts << " hosts";
  }
}

TEST(ClockRounds, of_nine_hosts_are_questions_to_the_first) {
  const Rounds rounds = clock_rounds(9);
  for (int host = 1; host < 9; ++host) {
    EXPECT_EQ(rounds[std::size_t(host) - 1],
              std::vector<ClockQuestion>({{.asks = host, .answers = 0}}));
  }
}

}  // namespace
}  // namespace sprat::comm::timeline
