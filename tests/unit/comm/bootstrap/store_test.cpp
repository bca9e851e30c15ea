// Ranks that meet in a store of their framework.
#include "sprat/store.hpp"

#include <gtest/gtest.h>

#include "tests/unit/comm/bootstrap/map_store.hpp"
#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

std::vector<Joined> join_in(SharedMap& map, const std::vector<Config>& configs) {
  std::vector<Joined> joined(configs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    threads.emplace_back([&, i] {
      MapStore store(map);
      try {
        joined[i].rank = open_rendezvous(configs[i], store);
      } catch (const Error& error) {
        joined[i].error = error;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return joined;
}

TEST(Store, ranks_meet_in_it_and_leave_nothing_there) {
  SharedMap map;
  auto joined = join_in(map, configs_at("", 3));
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_FALSE(joined[rank].error) << joined[rank].error->what();
    EXPECT_EQ(joined[rank].rank->rank(), rank);
    EXPECT_EQ(joined[rank].rank->size(), 3);
  }
  EXPECT_EQ(map.size(), 0u);
  leave(joined);
}

TEST(Store, what_an_earlier_job_left_there_does_no_harm) {
  SharedMap map;
  map.set("sprat/contact", "not an address");
  auto joined = join_in(map, configs_at("", 2));
  for (const Joined& one : joined) {
    ASSERT_FALSE(one.error) << one.error->what();
  }
  leave(joined);
}

TEST(Store, who_waits_for_rank_0_asks_once) {
  SharedMap map;
  auto configs = configs_at("", 2);
  for (Config& config : configs) {
    config.join_timeout = 60s;
  }
  std::vector<Joined> early;
  std::thread other([&] { early = join_in(map, {configs[1]}); });
  const auto patience = map.patience();
  auto joined = join_in(map, {configs[0]});
  other.join();
  joined.push_back(std::move(early[0]));
  for (const Joined& one : joined) {
    EXPECT_FALSE(one.error) << one.error->what();
  }
  EXPECT_GT(patience, 30s) << "each call that ends with nothing may be logged by the store";
  leave(joined);
}

TEST(Store, without_rank_0_the_others_say_so_at_the_deadline) {
  SharedMap map;
  auto configs = configs_at("", 2);
  configs.erase(configs.begin());
  configs[0].join_timeout = 300ms;
  const auto joined = join_in(map, configs);
  ASSERT_TRUE(joined[0].error);
  EXPECT_EQ(joined[0].error->code(), ErrorCode::timeout);
  EXPECT_NE(std::string(joined[0].error->what()).find("the map of this test"), std::string::npos)
      << joined[0].error->what();
}

TEST(Store, a_rank_beyond_the_size_is_refused) {
  SharedMap map;
  auto configs = configs_at("", 2);
  configs.resize(1);
  configs[0].rank = 2;
  const auto joined = join_in(map, configs);
  ASSERT_TRUE(joined[0].error);
  EXPECT_EQ(joined[0].error->code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace sprat::comm
