// Survivors that meet, and meet again: each rank on a thread of its own.
#include "comm/survival/survivor_listener.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/survival/port_probe.hpp"
#include "tests/unit/comm/base/soft_limit.hpp"
#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::comm {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Listeners = std::vector<std::shared_ptr<SurvivorListener>>;
using Gathered = SurvivorListener::Gathered;

Config of_this_host() {
  Config config;
  config.interface = "lo";
  return config;
}

/// Those of a job of that many ranks, by rank.
Listeners listeners_of(int size) {
  Listeners listeners;
  std::vector<std::vector<SocketAddress>> addresses;
  for (int rank = 0; rank < size; ++rank) {
    listeners.push_back(SurvivorListener::open(of_this_host()));
    addresses.push_back(listeners.back()->addresses());
  }
  for (int rank = 0; rank < size; ++rank) {
    listeners[static_cast<std::size_t>(rank)]->settle(rank, AddressBook(addresses), "a secret");
  }
  return listeners;
}

std::future<Gathered> start_gathering(const std::shared_ptr<SurvivorListener>& listener) {
  return std::async(std::launch::async, [&listener] {
    Gathered gathered = listener->gather(1, soon());
    listener->commit(gathered.numbers);
    return gathered;
  });
}

/// All that are there gather at the same time. What each of them got.
std::vector<Gathered> gather(const Listeners& listeners) {
  std::vector<std::future<Gathered>> under_way;
  for (const auto& listener : listeners) {
    if (listener) {
      under_way.push_back(start_gathering(listener));
    }
  }
  std::vector<Gathered> gathered;
  for (auto& one : under_way) {
    gathered.push_back(one.get());
  }
  return gathered;
}

/// As a job ends.
void leave(std::vector<Gathered>& gathered) {
  Ranks ranks;
  for (Gathered& one : gathered) {
    ranks.push_back(std::move(one.rendezvous));
  }
  leave(ranks);
}

ControlMessage failure(Kind kind, ErrorCode code, int rank) {
  ControlMessage message;
  message.kind = kind;
  message.code = static_cast<int>(code);
  message.rank = rank;
  message.text = "as the test wants it";
  return message;
}

TEST(SurvivorListener, leads_again_while_the_job_that_it_led_to_is_still_there) {
  const Listeners listeners = listeners_of(3);
  std::vector<Gathered> before = gather(listeners);
  for (int round = 0; round < 8; ++round) {
    before[1].rendezvous->tell(failure(Kind::failed, ErrorCode::aborted, 1));
    std::vector<Gathered> now = gather(listeners);
    for (const Gathered& one : now) {
      EXPECT_THAT(one.numbers, ElementsAre(0, 1, 2)) << "round " << round;
    }
    leave(before);
    before = std::move(now);
  }
  leave(before);
}

// The dead rank of the shrunk job has the number there that a living one had before.
TEST(SurvivorListener, is_not_taken_for_the_dead_rank_that_has_its_number_in_the_shrunk_job) {
  Listeners listeners = listeners_of(4);
  listeners[1].reset();
  std::vector<Gathered> first = gather(listeners);
  EXPECT_THAT(first[0].numbers, ElementsAre(0, 2, 3));
  Ear ear(*first[1].rendezvous);
  first[0].rendezvous->tell(failure(Kind::lost, ErrorCode::lost_peer, 2));
  EXPECT_EQ(ear.next().rank, 2);
  listeners[3].reset();
  // Rank 2 comes first, and meets the coordinator of the shrunk job.
  std::future<Gathered> follower = start_gathering(listeners[2]);
  EXPECT_EQ(follower.wait_for(200ms), std::future_status::timeout) << "its leader has not come";
  std::future<Gathered> leader = start_gathering(listeners[0]);
  std::vector<Gathered> second;
  for (auto* one : {&leader, &follower}) {
    second.push_back(one->get());
    EXPECT_THAT(second.back().numbers, ElementsAre(0, 2));
  }
  leave(first);
  leave(second);
}

/// What a gathering that does not end well says.
std::optional<Error> gathering_failure(SurvivorListener& listener,
                                       std::chrono::milliseconds patience) {
  try {
    listener.gather(1, Clock::now() + patience);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(SurvivorListener, names_the_leader_that_has_not_come) {
  Listeners listeners = listeners_of(4);
  listeners[0].reset();
  const auto first = gathering_failure(*listeners[2], 300ms);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->code(), ErrorCode::timeout);
  EXPECT_EQ(first->rank(), 1);
  EXPECT_THAT(first->what(), HasSubstr("Rank 1 is the lowest that is left: has it called shrink"));
  EXPECT_THAT(first->what(), Not(HasSubstr("Rank 0")));
  // Once the job has shrunk, errors name ranks as that job numbers them.
  listeners[2]->commit({1, 2, 3});
  const auto second = gathering_failure(*listeners[2], 300ms);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->rank(), 0);
  EXPECT_THAT(second->what(), HasSubstr("it is rank 0 of those that it has now"));
}

TEST(SurvivorListener, is_found_alive_however_often_it_is_looked_at) {
  constexpr std::size_t longest_queue = 4096;  // what the system allows at most, as it is set up
  const auto listener = SurvivorListener::open(of_this_host());
  const std::vector<std::vector<SocketAddress>> looks(most_probed_at_once, listener->addresses());
  for (std::size_t made = 0; made <= longest_queue + looks.size(); made += looks.size()) {
    ASSERT_THAT(who_listens(looks), Each(true)) << "after " << made << " looks";
  }
}

TEST(SurvivorListener, makes_room_for_the_connections_of_all_that_may_come) {
  constexpr std::size_t ranks = 300;
  const auto listener = SurvivorListener::open(of_this_host());
  // Nobody listens there any more.
  const std::vector<SocketAddress> dead = SurvivorListener::open(of_this_host())->addresses();
  std::vector<std::vector<SocketAddress>> addresses(ranks, dead);
  addresses[0] = listener->addresses();
  listener->settle(0, AddressBook(addresses), "a secret");
  const SoftLimit low(250);
  EXPECT_THAT(listener->gather(1, soon()).numbers, ElementsAre(0));
  EXPECT_GE(soft_limit(), ranks);
}

}  // namespace
}  // namespace sprat::comm
