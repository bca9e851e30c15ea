// Ranks that exchange and tell each other, over each kind of wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::comm {
namespace {

using ::testing::HasSubstr;

/// A way to open a job of several ranks, all in this process.
struct Wire {
  const char* name;
  Ranks (*open)(int size);
};

class EveryWire : public ::testing::TestWithParam<Wire> {};

TEST_P(EveryWire, exchanges_every_ranks_blob) {
  for (const int size : {1, 2, 5}) {
    Ranks ranks = GetParam().open(size);
    on_each(ranks, [&](Rendezvous& rank) {
      EXPECT_EQ(rank.size(), size);
      for (int round = 0; round < 5; ++round) {
        const auto all =
            rank.exchange(blob(std::to_string(100 * round + rank.rank())), "meeting", soon());
        ASSERT_EQ(static_cast<int>(all.size()), size);
        for (int other = 0; other < size; ++other) {
          EXPECT_EQ(all[other], blob(std::to_string(100 * round + other))) << "rank " << other;
        }
      }
    });
    leave(ranks);
  }
}

// So long, parts travel once to each host, from whose memory the others read them.
TEST_P(EveryWire, exchanges_megabytes) {
  constexpr int size = 4;
  Ranks ranks = GetParam().open(size);
  on_each(ranks, [&](Rendezvous& rank) {
    rank.set_host(7);
    for (int round = 1; round <= 3; ++round) {
      const auto said_by = [round](int who) {
        return Blob(1 << 20, static_cast<std::byte>(10 * round + who));
      };
      const auto all = rank.exchange(said_by(rank.rank()), "meeting", soon());
      ASSERT_EQ(all.size(), std::size_t{size});
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(all[other], said_by(other)) << "rank " << other << " in round " << round;
      }
    }
  });
  leave(ranks);
}

TEST_P(EveryWire, names_who_did_not_come_at_the_deadline) {
  Ranks ranks = GetParam().open(3);
  on_each(ranks, [&](Rendezvous& rank) {
    if (rank.rank() == 1) {
      return;
    }
    try {
      rank.exchange({}, "mapping memory", Clock::now() + 1s);
      ADD_FAILURE() << "rank " << rank.rank() << " got what rank 1 did not send";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("mapping memory"));
    }
  });
  EXPECT_THROW(ranks[1]->exchange({}, "mapping memory", soon()), Error);
  leave(ranks);
}

TEST_P(EveryWire, relays_a_failure_to_every_other_rank) {
  Ranks ranks = GetParam().open(3);
  Ear ear0(*ranks[0]), ear2(*ranks[2]);
  ControlMessage failure;
  failure.kind = Kind::failed;
  failure.rank = 1;
  failure.code = static_cast<int>(ErrorCode::aborted);
  failure.text = "had enough";
  ranks[1]->tell(failure);
  for (Ear* ear : {&ear0, &ear2}) {
    const ControlMessage heard = ear->next();
    EXPECT_EQ(heard.kind, Kind::failed);
    EXPECT_EQ(heard.rank, 1);
    EXPECT_EQ(heard.code, static_cast<int>(ErrorCode::aborted));
    EXPECT_EQ(heard.text, "had enough");
  }
  leave(ranks);
}

TEST_P(EveryWire, hears_what_came_before_it_listened) {
  Ranks ranks = GetParam().open(2);
  ControlMessage failure;
  failure.kind = Kind::failed;
  failure.rank = 0;
  failure.text = "early";
  ranks[0]->tell(failure);
  try {  // fails once the message is here
    ranks[1]->exchange({}, "meeting", soon());
    ADD_FAILURE() << "exchanged with a rank that failed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("early"));
  }
  Ear ear(*ranks[1]);
  EXPECT_EQ(ear.next().text, "early");
  leave(ranks);
}

TEST_P(EveryWire, says_farewell) {
  Ranks ranks = GetParam().open(3);
  Ear ear0(*ranks[0]), ear1(*ranks[1]);
  ranks[2].reset();
  for (Ear* ear : {&ear0, &ear1}) {
    const ControlMessage heard = ear->next();
    EXPECT_EQ(heard.kind, Kind::farewell);
    EXPECT_EQ(heard.rank, 2);
  }
  leave(ranks);
}

TEST_P(EveryWire, fails_an_exchange_that_a_rank_left_before) {
  Ranks ranks = GetParam().open(3);
  ranks[2].reset();
  on_each(ranks, [](Rendezvous& rank) {
    try {
      rank.exchange({}, "meeting", soon());
      ADD_FAILURE() << "exchanged with a rank that left";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::lost_peer) << error.what();
      EXPECT_EQ(error.rank(), 2);
    }
  });
  leave(ranks);
}

/// Every rank answers queries from its handler; ranks 0 and 1 have called, with these signatures.
void answer_from_handlers(Ranks& ranks, std::vector<const char*> called,
                          std::vector<std::promise<ControlMessage>>& verdicts) {
  for (auto& rank : ranks) {
    rank->listen([&rank = *rank, called, &verdicts](const ControlMessage& message) {
      if (message.kind == Kind::verdict) {
        verdicts[rank.rank()].set_value(message);
      }
      if (message.kind != Kind::query) {
        return;
      }
      ControlMessage answer = message;
      answer.kind = Kind::answer;
      answer.rank = rank.rank();
      const char* mine = called[rank.rank()];
      answer.code = mine == nullptr ? 1 : 0;
      if (mine != nullptr) {
        answer.payload = blob(mine);
      }
      rank.tell(answer);
    });
  }
}

ControlMessage stalled(int rank, std::string_view signature) {
  ControlMessage message;
  message.kind = Kind::stalled;
  message.rank = rank;
  message.comm = 1;
  message.sequence = 9;
  message.payload = blob(signature);
  return message;
}

TEST_P(EveryWire, finds_ranks_that_call_different_things) {
  Ranks ranks = GetParam().open(3);
  std::vector<std::promise<ControlMessage>> verdicts(3);
  answer_from_handlers(ranks, {"sum of 4", "sum of 5", nullptr}, verdicts);
  ranks[0]->tell(stalled(0, "sum of 4"));
  for (auto& promise : verdicts) {
    auto future = promise.get_future();
    ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
    const ControlMessage verdict = future.get();
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::mismatch));
    EXPECT_EQ(verdict.text, "rank 0 called sum of 4; rank 1 called sum of 5");
    EXPECT_EQ(verdict.sequence, 9u);
  }
  leave(ranks);
}

TEST_P(EveryWire, finds_ranks_that_have_not_called) {
  Ranks ranks = GetParam().open(3);
  std::vector<std::promise<ControlMessage>> verdicts(3);
  answer_from_handlers(ranks, {"sum of 4", "sum of 4", nullptr}, verdicts);
  ranks[1]->tell(stalled(1, "sum of 4"));
  auto future = verdicts[1].get_future();
  ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(decode_lateness(future.get().payload).late, std::vector<int>{2});
  leave(ranks);
}

Ranks open_at_file(int size) {
  const Folder folder;
  Ranks ranks = open_at("file://" + (folder / "job").string(), size);
  EXPECT_TRUE(folder.empty()) << "the file is still there";
  return ranks;
}

Ranks open_at_address(int size) {
  return open_at("tcp://127.0.0.1:" + std::to_string(free_port()), size);
}

// Rank 2 shares with ranks 3 to 5, and is gone as soon as it has the parts itself.
TEST(SharedParts, reach_a_whole_host_though_the_rank_that_shares_them_leaves_at_once) {
  constexpr int size = 6;
  const auto said_by = [](int rank) { return Blob(64 << 10, static_cast<std::byte>(rank)); };
  for (int round = 0; round < 5; ++round) {
    const Folder folder;
    Ranks ranks;
    for (Joined& one : join_all(configs_at("file://" + (folder / "job").string(), size))) {
      ASSERT_FALSE(one.error) << one.error->what();
      ranks.push_back(std::move(one.rank));
    }
    on_each(ranks, [&](Rendezvous& rank) {
      const int me = rank.rank();
      rank.set_host(me < 2 ? 1 : 2);
      const auto all = rank.exchange(said_by(me), "meeting", soon());
      ASSERT_EQ(all.size(), std::size_t{size});
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(all[other], said_by(other)) << "rank " << other << " to rank " << me;
      }
      if (me == 2) {
        ranks[2].reset();
      }
    });
    leave(ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(Rendezvous, EveryWire,
                         ::testing::Values(Wire{"in_process", open_rendezvous_in_process},
                                           Wire{"file", open_at_file},
                                           Wire{"tcp", open_at_address}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace sprat::comm
