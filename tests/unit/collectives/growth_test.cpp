// Communicators that take ranks which come later, whatever becomes of those who are to come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"
#include "tests/unit/comm/bootstrap/map_store.hpp"
#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::growth {
namespace {

using comm::MapStore;
using comm::SharedMap;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

Config config_of(int rank = -1, int size = -1) {
  Config config;
  config.rank = rank;
  config.size = size;
  config.timeout = config.join_timeout = 20s;
  return config;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(name(error.code())) + ": " + error.what();
  }
  return "no error";
}

/// The sum of rank + 1, of which every rank has an element in `group`.
void expect_right(Communicator& group) {
  std::vector<std::uint32_t> data(2'000, static_cast<std::uint32_t>(group.rank()) + 1);
  group.all_reduce(elements(data)).wait();
  const auto size = static_cast<std::uint32_t>(group.size());
  ASSERT_EQ(data, std::vector<std::uint32_t>(data.size(), size * (size + 1) / 2));
}

/// `members` ranks that have a job, and `newcomers` that have none yet, each a thread with a store
/// of its own.
struct Cast {
  SharedMap map;
  std::function<void(Communicator& world, Store& store)> member;
  std::function<void(int number, Store& store)> newcomer = {};

  void play(int members, int newcomers) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < members; ++rank) {
      threads.emplace_back([&, rank] {
        MapStore store(map);
        Communicator world = Communicator::join(config_of(rank, members), store);
        member(world, store);
      });
    }
    for (int number = 0; number < newcomers; ++number) {
      threads.emplace_back([&, number] {
        MapStore store(map);
        newcomer(number, store);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(map.size(), 0u) << "a growth leaves nothing in the store";
  }
};

TEST(Growth, keeps_numbers_while_the_old_communicator_goes_on) {
  std::atomic<int> sum_of_newcomers = 0;
  Cast cast{.map = {},
            .member =
                [](Communicator& world, Store& store) {
                  std::thread elsewhere([&] {
                    for (int round = 0; round < 100; ++round) {
                      expect_right(world);
                    }
                  });
                  Communicator grown = world.grow(2, store);
                  EXPECT_EQ(grown.rank(), world.rank());
                  EXPECT_EQ(grown.size(), 5);
                  expect_right(grown);
                  elsewhere.join();
                  Communicator part = *grown.split(grown.rank() % 2);
                  expect_right(part);
                  expect_right(world);
                  grown.barrier();
                },
            .newcomer =
                [&](int, Store& store) {
                  Communicator grown = Communicator::join_growing(config_of(), store);
                  sum_of_newcomers += grown.rank();
                  EXPECT_EQ(grown.size(), 5);
                  expect_right(grown);
                  Communicator part = *grown.split(grown.rank() % 2);
                  expect_right(part);
                  grown.barrier();
                }};
  cast.play(3, 2);
  EXPECT_EQ(sum_of_newcomers, 3 + 4);
}

/// Of a communicator that a program has split off, in another order than the world's.
TEST(Growth, of_a_part_has_its_ranks_alone) {
  Cast cast{.map = {},
            .member =
                [](Communicator& world, Store& store) {
                  std::optional<Communicator> part =
                      world.split(world.rank() == 0 ? -1 : 0, -world.rank());
                  if (part) {
                    Communicator grown = part->grow(1, store);
                    EXPECT_EQ(grown.rank(), 2 - world.rank());
                    EXPECT_EQ(grown.size(), 3);
                    expect_right(grown);
                  }
                  expect_right(world);
                },
            .newcomer =
                [](int, Store& store) {
                  Communicator grown = Communicator::join_growing(config_of(), store);
                  EXPECT_EQ(grown.rank(), 2);
                  expect_right(grown);
                }};
  cast.play(3, 1);
}

TEST(Growth, names_who_does_not_come_and_may_be_tried_again) {
  std::latch failed(2);
  Cast cast{.map = {},
            .member =
                [&](Communicator& world, Store& store) {
                  EXPECT_THAT(error_of([&] { static_cast<void>(world.grow(1, store, 200ms)); }),
                              AllOf(HasSubstr("timeout: growing: 2 of 3 ranks came"),
                                    HasSubstr("missing: rank 2 (newcomers are those from 2 on)")));
                  EXPECT_FALSE(world.failure());
                  expect_right(world);
                  failed.count_down();
                  Communicator grown = world.grow(1, store);
                  expect_right(grown);
                },
            .newcomer =
                [&](int, Store& store) {
                  failed.wait();
                  Communicator grown = Communicator::join_growing(config_of(), store);
                  expect_right(grown);
                }};
  cast.play(2, 1);
}

TEST(Growth, ends_at_once_where_a_member_ends) {
  Cast cast{.map = {}, .member = [&](Communicator& world, Store& store) {
              if (world.rank() == 2) {
                return;
              }
              const auto begin = std::chrono::steady_clock::now();
              EXPECT_THAT(error_of([&] { static_cast<void>(world.grow(1, store)); }),
                          AllOf(HasSubstr("lost peer: "), HasSubstr("lost rank 2"),
                                HasSubstr("of world, which grows, has ended")));
              EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
            }};
  cast.play(3, 0);
}

TEST(Growth, refuses_newcomers_by_what_they_differ_in_and_leaves_the_members_well) {
  Cast cast{.map = {},
            .member =
                [&](Communicator& world, Store& store) {
                  EXPECT_THAT(error_of([&] { static_cast<void>(world.grow(1, store)); }),
                              AllOf(HasSubstr("mismatch: "), HasSubstr("rank 2 and rank 0 differ"),
                                    HasSubstr("SPRAT_STAGING")));
                  expect_right(world);
                },
            .newcomer =
                [&](int, Store& store) {
                  Config config = config_of();
                  config.staging_bytes = 1 << 20;
                  EXPECT_THAT(error_of([&] {
                                static_cast<void>(Communicator::join_growing(config, store));
                              }),
                              AllOf(HasSubstr("mismatch: "), HasSubstr("SPRAT_STAGING")));
                }};
  cast.play(2, 1);
}

TEST(Growth, does_not_let_in_who_has_another_token) {
  Cast cast{.map = {},
            .member =
                [&](Communicator& world, Store& store) {
                  EXPECT_THAT(error_of([&] { static_cast<void>(world.grow(1, store, 1500ms)); }),
                              HasSubstr("missing: rank 2"));
                  expect_right(world);
                },
            .newcomer =
                [&](int, Store& store) {
                  Config config = config_of();
                  config.token = "another";
                  config.join_timeout = 1s;
                  EXPECT_THAT(error_of([&] {
                                static_cast<void>(Communicator::join_growing(config, store));
                              }),
                              AllOf(HasSubstr("a newcomer found no hub"),
                                    HasSubstr("or with another token, answers")));
                }};
  cast.play(2, 1);
}

/// Whoever comes while all places are taken waits for the next growth.
TEST(Growth, takes_one_newcomer_after_the_other) {
  std::atomic<int> sum_of_newcomers = 0;
  Cast cast{.map = {},
            .member =
                [&](Communicator& world, Store& store) {
                  Communicator first = world.grow(1, store);
                  expect_right(first);
                  Communicator second = first.grow(1, store);
                  expect_right(second);
                },
            .newcomer =
                [&](int, Store& store) {
                  Communicator first = Communicator::join_growing(config_of(), store);
                  sum_of_newcomers += first.rank();
                  expect_right(first);
                  if (first.rank() == 2) {
                    Communicator second = first.grow(1, store);
                    expect_right(second);
                  }
                }};
  cast.play(2, 2);
  EXPECT_EQ(sum_of_newcomers, 2 + 3);
}

TEST(Growth, of_what_has_failed_says_why) {
  Cast cast{.map = {}, .member = [&](Communicator& world, Store& store) {
              Communicator part = world.duplicate("part");
              part.revoke("it is enough");
              EXPECT_THAT(error_of([&] { static_cast<void>(part.grow(1, store)); }),
                          HasSubstr("it is enough"));
              EXPECT_THAT(error_of([&] { static_cast<void>(world.grow(0, store)); }),
                          HasSubstr("at least one must come"));
              world.barrier();
            }};
  cast.play(2, 0);
}

TEST(Growth, by_an_address_needs_no_store) {
  const comm::Folder folder;
  for (const std::string& place : {"file://" + (folder / "growth").string(),
                                   "tcp://127.0.0.1:" + std::to_string(comm::free_port())}) {
    Cast cast{.map = {},
              .member =
                  [&](Communicator& world, Store&) {
                    Communicator grown = world.grow(1, place);
                    EXPECT_EQ(grown.size(), 3);
                    expect_right(grown);
                  },
              .newcomer =
                  [&](int, Store&) {
                    Config config = config_of();
                    config.rendezvous = place;
                    Communicator grown = Communicator::join_growing(config);
                    EXPECT_EQ(grown.rank(), 2);
                    expect_right(grown);
                  }};
    cast.play(2, 1);
  }
  EXPECT_TRUE(folder.empty());
}

}  // namespace
}  // namespace sprat::growth
