// One communicator fails, in each way that there is; others of the same ranks go on.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "sprat/communicator.hpp"
#include "sprat/mesh.hpp"

namespace sprat::failure_domains {
namespace {

using namespace std::chrono_literals;

constexpr int ranks = 4;
// On each communicator that is well, while another one fails and after.
constexpr int rounds = 60;

Config on_hosts(const std::string& hosts, const std::string& provider = "") {
  Config config;
  config.provider = provider;
  config.timeout = 20s;
  config.host = hosts;
  return config;
}

/// A call of every kind that differs in how it moves bytes, checked element by element.
void expect_right(Communicator& group, std::uint32_t round) {
  constexpr std::size_t counts[] = {1, 600, 40'000};
  const std::size_t count = counts[round % 3];
  const auto size = static_cast<std::uint32_t>(group.size());
  const auto me = static_cast<std::uint32_t>(group.rank());
  std::vector<std::uint32_t> mine(count, round * 100 + me), out(count);
  if (round % 2 == 0) {
    group.all_reduce(elements(mine), elements(out)).wait();
    const std::uint32_t sum = size * round * 100 + size * (size - 1) / 2;
    ASSERT_EQ(out, std::vector<std::uint32_t>(count, sum)) << group.name() << " round " << round;
  } else {
    const int next = static_cast<int>((me + 1) % size);
    const int before = static_cast<int>((me + size - 1) % size);
    Work sent = group.send(elements(mine), next, 3);
    group.recv(elements(out), before, 3).wait();
    sent.wait();
    ASSERT_EQ(out, std::vector<std::uint32_t>(count, round * 100 + static_cast<unsigned>(before)))
        << group.name() << " round " << round;
  }
}

std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// How a communicator comes to fail. What is posted on it must fail, on every rank.
struct Way {
  const char* name;
  std::function<Work(Communicator&, std::vector<float>&)> post;
  ErrorCode code;
  const char* words;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"a rank stays away",
       [](Communicator& group, std::vector<float>& data) {
         return group.rank() == 1
                    ? Work()
                    : group.all_reduce(elements(data), ReduceOp::sum, {.timeout = 300ms});
       },
       ErrorCode::timeout, "not called by rank 1"},
      {"ranks disagree",
       [](Communicator& group, std::vector<float>& data) {
         return group.rank() == 1 ? group.all_gather(elements(std::span(data).subspan(100, 4)),
                                                     elements(std::span(data).first(16)))
                                  : group.all_reduce(elements(data));
       },
       ErrorCode::mismatch, "all_gather of 4 f32"},
      {"a rank aborts it",
       [](Communicator& group, std::vector<float>& data) {
         Work work = group.rank() == 1 ? Work() : group.all_reduce(elements(data));
         if (group.rank() == 1) {
           group.abort("of this one");
         }
         return work;
       },
       ErrorCode::aborted, "of this one"},
      {"a rank revokes it",
       [](Communicator& group, std::vector<float>& data) {
         Work work = group.rank() == 1 ? Work() : group.all_reduce(elements(data));
         if (group.rank() == 1) {
           group.revoke("no more");
         }
         return work;
       },
       ErrorCode::aborted, "revoked"},
      {"no message comes",
       [](Communicator& group, std::vector<float>& data) {
         return group.rank() == 0 ? group.recv(elements(data), 1, 5, {.timeout = 300ms}) : Work();
       },
       ErrorCode::timeout, "rank 1"},
      {"nobody takes a message",
       [](Communicator& group, std::vector<float>& data) {
         return group.rank() == 0 ? group.send(elements(data), 1, 5, {.timeout = 300ms}) : Work();
       },
       ErrorCode::timeout, "rank 1"},
  };
  return all;
}

/// Waits for the failure of `group` while others run; a failed rank's buffers are its own.
void fail_one(const Way& way, Communicator& group, std::vector<Communicator>& others) {
  std::vector<float> data(60'000, 1.0f);
  Work work = way.post(group, data);
  std::uint32_t round = 0;
  for (; round < rounds; ++round) {
    for (Communicator& other : others) {
      expect_right(other, round);
    }
  }
  // All ranks stop in the same round.
  const auto patience = std::chrono::steady_clock::now() + 20s;
  for (std::uint32_t seen = 0; seen == 0;) {
    seen = group.failure() || std::chrono::steady_clock::now() > patience ? 1 : 0;
    others.front().all_reduce(elements(std::span(&seen, 1)), ReduceOp::min).wait();
  }
  const auto failure = group.failure();
  ASSERT_TRUE(failure) << way.name;
  EXPECT_EQ(failure->code(), way.code) << way.name << ": " << failure->what();
  EXPECT_NE(std::string(failure->what()).find(way.words), std::string::npos) << failure->what();
  if (const auto error = error_of([&] { work.wait(); })) {
    EXPECT_EQ(error->code(), way.code) << error->what();
  }
  std::fill(data.begin(), data.end(), -1.0f);
  EXPECT_TRUE(error_of([&] { group.barrier(); })) << way.name << ": it is final";
  for (; round < 2 * rounds; ++round) {
    for (Communicator& other : others) {
      expect_right(other, round);
      EXPECT_FALSE(other.failure());
    }
  }
  EXPECT_EQ(data, std::vector<float>(data.size(), -1.0f)) << way.name << ": a late write";
}

TEST(FailureDomains, one_communicator_fails_and_three_of_the_same_ranks_go_on) {
  for (const Config& config :
       {on_hosts(""), on_hosts("a,a,b,b"), on_hosts("a,a,b,b", "libfabric")}) {
    for (const Way& way : ways()) {
      run_virtual_ranks(ranks, config, [&](Communicator& world) {
        Communicator group = world.duplicate("group");
        std::vector<Communicator> others;
        for (int number = 0; number < 3; ++number) {
          others.push_back(world.duplicate());
        }
        fail_one(way, group, others);
        EXPECT_FALSE(world.failure()) << way.name;
        world.barrier();
      });
    }
  }
}

// A control block holds some 70 KiB: those of four thousand that failed would not fit. A message
// that nobody takes has 8 KiB: those of a hundred use up what a sender may send ahead.
TEST(FailureDomains, what_failed_communicators_had_is_used_again) {
  for (const char* hosts : {"", "a,b"}) {
    run_virtual_ranks(2, on_hosts(hosts), [&](Communicator& world) {
      const int many = std::string(hosts).empty() ? 4'000 : 100;
      for (int round = 0; round < many; ++round) {
        Communicator group = world.duplicate();
        std::vector<float> data(2'000);
        if (world.rank() == round % 2) {
          group.send(elements(data), 1 - world.rank(), 1).wait();  // nobody receives it
          group.abort("again");
        } else {
          EXPECT_TRUE(error_of([&] { group.barrier(); }));
        }
      }
      expect_right(world, 2);
    });
  }
}

TEST(FailureDomains, the_world_stands_for_the_job) {
  run_virtual_ranks(2, on_hosts(""), [&](Communicator& world) {
    const auto error = error_of([&] {
      Communicator group = world.duplicate("group");
      if (world.rank() == 1) {
        world.abort("all of it");
      }
      for (;;) {
        group.barrier();
      }
    });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("aborted the job: all of it"), std::string::npos);
  });
}

TEST(FailureDomains, a_revoked_world_leaves_its_children_well) {
  run_virtual_ranks(2, on_hosts(""), [&](Communicator& world) {
    Communicator group = world.duplicate("group");
    group.barrier();  // all have it: to make one needs the world
    if (world.rank() == 1) {
      world.revoke();
    } else {
      const auto error = error_of([&] { world.barrier(); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::aborted);
      EXPECT_NE(std::string(error->what()).find("rank 1 revoked world"), std::string::npos)
          << error->what();
    }
    for (std::uint32_t round = 0; round < rounds; ++round) {
      expect_right(group, round);
    }
  });
}

/// All ranks of a mesh hear at once, whatever axis they wait on.
TEST(FailureDomains, the_axes_of_a_mesh_fail_together) {
  run_virtual_ranks(ranks, on_hosts(""), [&](Communicator& world) {
    Communicator part = world.duplicate("part");
    {
      Mesh mesh(part, {{"replica", 2}, {"shard", 2}});
      world.barrier();
      if (world.rank() == 3) {
        mesh["shard"].abort("rank 3 gives up");  // ranks 2 and 3
      }
      const auto error = error_of([&] {
        for (;;) {
          mesh["replica"].barrier();  // ranks 0 and 2, 1 and 3
        }
      });
      ASSERT_TRUE(error);
      EXPECT_NE(std::string(error->what()).find("rank 3 gives up"), std::string::npos);
      EXPECT_TRUE(part.failure());
    }
    EXPECT_FALSE(world.failure());
    world.barrier();
  });
}

TEST(FailureDomains, what_fails_while_others_make_it_has_failed_for_them) {
  for (int round = 0; round < 50; ++round) {
    run_virtual_ranks(3, on_hosts(""), [&](Communicator& world) {
      Communicator group = world.duplicate("group");
      if (world.rank() == 0) {
        group.revoke("at once");
      }
      EXPECT_TRUE(error_of([&] {
        for (;;) {
          group.barrier();
        }
      }));
      world.barrier();
    });
  }
}

TEST(FailureDomains, a_message_nobody_takes_is_no_other_communicators) {
  for (const char* hosts : {"", "a,b"}) {
    run_virtual_ranks(2, on_hosts(hosts), [&](Communicator& world) {
      std::vector<std::uint32_t> data(100);
      for (std::uint32_t round = 0; round < 300; ++round) {
        Communicator group = world.duplicate();
        if (world.rank() == 0) {
          std::fill(data.begin(), data.end(), round);
          group.send(elements(data), 1, 7).wait();
          if (round % 2 == 0) {
            group.revoke();
          }
        } else if (round % 2 == 0) {
          EXPECT_TRUE(error_of([&] { group.recv(elements(data), 0, 8).wait(); }));
        } else {
          group.recv(elements(data), 0, 7).wait();
          ASSERT_EQ(data, std::vector<std::uint32_t>(100, round));
        }
      }
    });
  }
}

TEST(Shrink, of_a_revoked_communicator_has_the_same_ranks_while_others_go_on) {
  for (const char* hosts : {"", "a,a,b,b"}) {
    run_virtual_ranks(ranks, on_hosts(hosts), [&](Communicator& world) {
      Communicator group = *world.split(0, 3 - world.rank(), "turned");
      Communicator other = world.duplicate();
      for (std::uint32_t generation = 0; generation < 5; ++generation) {
        world.barrier();  // nobody is in the midst of the last generation's calls
        if (world.rank() == 2) {
          group.revoke("to shrink");
        }
        Work under_way;
        std::vector<std::uint32_t> data(50'000, 1);
        if (world.rank() % 2 == 0) {
          under_way = other.all_reduce(elements(data));
        }
        group = group.shrink();
        ASSERT_EQ(group.size(), ranks);
        ASSERT_EQ(group.rank(), 3 - world.rank());
        ASSERT_EQ(group.name(), "turned");
        if (world.rank() % 2 == 1) {
          under_way = other.all_reduce(elements(data));
        }
        for (std::uint32_t round = 0; round < 10; ++round) {
          expect_right(group, round);
        }
        under_way.wait();
        EXPECT_EQ(data.back(), 4u);
      }
      EXPECT_FALSE(world.failure());
    });
  }
}

TEST(Shrink, leaves_behind_who_does_not_come) {
  run_virtual_ranks(3, on_hosts(""), [&](Communicator& world) {
    Communicator group = world.duplicate("group");
    if (world.rank() == 1) {
      world.recv(elements(std::span<std::uint32_t>()), 0, 1).wait();  // the others are through
      const auto error = error_of([&] { static_cast<void>(group.shrink()); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::lost_peer) << error->what();
      EXPECT_NE(std::string(error->what()).find("went on without rank 1"), std::string::npos);
      return;
    }
    Communicator rest = group.shrink(2, 300ms);
    EXPECT_EQ(rest.size(), 2);
    expect_right(rest, 0);
    if (world.rank() == 0) {
      world.send(elements(std::span<std::uint32_t>()), 1, 1).wait();
    }
  });
}

TEST(Shrink, says_who_are_too_few_and_leaves_the_others_well) {
  run_virtual_ranks(3, on_hosts(""), [&](Communicator& world) {
    Communicator group = world.duplicate("group");
    if (world.rank() != 1) {
      const auto error = error_of([&] { static_cast<void>(group.shrink(3, 200ms)); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::unavailable);
      EXPECT_NE(std::string(error->what()).find("2 of the 3 ranks of group"), std::string::npos)
          << error->what();
    }
    world.barrier();
  });
}

}  // namespace
}  // namespace sprat::failure_domains
