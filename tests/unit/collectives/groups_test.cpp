// Communicators made by their members alone, and copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "sprat/communicator.hpp"

namespace sprat {
namespace {

using ::testing::HasSubstr;

Config on_hosts(const char* hosts) {
  Config config;
  config.host = hosts;
  return config;
}

int sum_over(Communicator& ranks, int value) {
  std::vector<std::int32_t> data = {value};
  ranks.all_reduce(elements(data)).wait();
  return data[0];
}

TEST(Group, is_made_by_its_members_alone) {
  for (const char* hosts : {"", "a,a,b,b,a"}) {
    run_virtual_ranks(5, on_hosts(hosts), [](Communicator& world) {
      const int me = world.rank();
      if (me == 1 || me == 3) {
        return;  // nobody needs them
      }
      const std::vector<int> members = {4, 0, 2};
      Communicator few = world.create_group(members, "few");
      EXPECT_EQ(few.size(), 3);
      EXPECT_EQ(members[static_cast<std::size_t>(few.rank())], me);
      EXPECT_EQ(few.name(), "few");
      EXPECT_EQ(sum_over(few, 1 << me), (1 << 4) + (1 << 0) + (1 << 2));
      few.barrier();
    });
  }
}

TEST(Group, may_be_of_one_rank) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    const int me = world.rank();
    Communicator alone = world.create_group(std::vector{me}, "alone");
    EXPECT_EQ(sum_over(alone, 7), 7);
  });
}

TEST(Group, sixty_four_live_at_once) {
  run_virtual_ranks(4, Config(), [](Communicator& world) {
    std::vector<Communicator> groups;
    for (int i = 0; i < 64; ++i) {
      groups.push_back(world.create_group(std::vector{0, 1, 2, 3}, "group" + std::to_string(i)));
    }
    std::vector<std::int32_t> data(64);
    std::vector<Work> works;
    for (int i = 0; i < 64; ++i) {
      data[static_cast<std::size_t>(i)] = i + world.rank();
      works.push_back(groups[static_cast<std::size_t>(i)].all_reduce(
          {&data[static_cast<std::size_t>(i)], 1, DType::i32}));
    }
    for (int i = 63; i >= 0; --i) {
      works[static_cast<std::size_t>(i)].wait();
      EXPECT_EQ(data[static_cast<std::size_t>(i)], 4 * i + 6);
    }
  });
}

TEST(Group, is_told_apart_by_name_when_threads_make_several) {
  for (int round = 0; round < 20; ++round) {
    run_virtual_ranks(3, Config(), [](Communicator& world) {
      const auto make = [&](int first, int second, const std::string& name) {
        if (world.rank() != first && world.rank() != second) {
          return;
        }
        Communicator pair = world.create_group(std::vector{first, second}, name);
        EXPECT_EQ(sum_over(pair, 10 + world.rank()), 20 + first + second) << name;
      };
      std::thread other([&] {
        make(0, 1, "a");
        make(1, 2, "b");
      });
      make(0, 2, "c");
      make(1, 2, "d");
      other.join();
    });
  }
}

TEST(Group, keeps_its_number_apart_from_those_of_a_split_at_the_same_time) {
  for (int round = 0; round < 20; ++round) {
    run_virtual_ranks(2, Config(), [](Communicator& world) {
      std::thread other([&] {
        Communicator group = world.create_group(std::vector{0, 1}, "group");
        for (int i = 0; i < 50; ++i) {
          EXPECT_EQ(sum_over(group, i), 2 * i);
        }
      });
      auto part = world.split(0);
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(sum_over(*part, 1000 + i), 2000 + 2 * i);
      }
      other.join();
    });
  }
}

std::uint64_t low_bits(Communicator& ranks) {
  return ranks.impl().executor.membership().id & ((1u << comm::Context::communicator_bits) - 1);
}

TEST(Group, has_a_number_that_tags_tell_from_those_of_all_that_live) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    std::vector<Communicator> all;
    all.push_back(world.duplicate("first"));
    if (world.rank() == 1) {
      all.push_back(world.create_group(std::vector{1}, "of one rank"));
    }
    {
      // As if as many as tags can tell apart had come and gone since.
      comm::Context& context = *world.impl().context;
      const auto token = context.take_token();
      context.next_communicator = (1u << comm::Context::communicator_bits) + low_bits(all.front());
    }
    all.push_back(world.duplicate("split"));
    all.push_back(world.create_group(std::vector{0, 1}, "group"));
    std::set<std::uint64_t> numbers = {low_bits(world)};
    for (Communicator& one : all) {
      EXPECT_TRUE(numbers.insert(low_bits(one)).second) << one.name() << " on " << world.rank();
      one.barrier();
    }
  });
}

TEST(Group, refuses_lists_that_make_no_sense) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    const auto code = [&](std::vector<int> ranks) {
      try {
        world.create_group(ranks, "x");
      } catch (const Error& error) {
        return error.code();
      }
      return ErrorCode::internal;
    };
    EXPECT_EQ(code({}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({1 - world.rank()}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({world.rank(), 2}), ErrorCode::invalid_argument);
    EXPECT_EQ(code({world.rank(), world.rank()}), ErrorCode::invalid_argument);
  });
}

TEST(Group, members_that_disagree_are_told_both_lists) {
  try {
    run_virtual_ranks(3, Config(), [](Communicator& world) {
      if (world.rank() == 0) {
        world.create_group(std::vector{0, 1, 2}, "x");
      } else {
        world.create_group(std::vector{0, 2, 1}, "x");
      }
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("group \"x\""));
    EXPECT_THAT(error.what(), HasSubstr("ranks 0-2"));
    EXPECT_THAT(error.what(), HasSubstr("ranks 0, 2, 1"));
  }
}

TEST(Group, a_member_that_does_not_call_is_named) {
  try {
    run_virtual_ranks(2, Config(), [](Communicator& world) {
      if (world.rank() == 0) {
        world.create_group(std::vector{0, 1}, "x", {.timeout = std::chrono::milliseconds(50)});
      }
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), HasSubstr("creating group \"x\""));
  }
}

TEST(Duplicate, has_operations_of_its_own) {
  run_virtual_ranks(3, Config(), [](Communicator& world) {
    Communicator copy = world.duplicate();
    EXPECT_EQ(copy.rank(), world.rank());
    std::vector<std::int32_t> a = {1}, b = {2};
    // In different orders on different ranks: each communicator has its own.
    Work first = world.rank() == 0 ? copy.all_reduce(elements(b)) : world.all_reduce(elements(a));
    Work second = world.rank() == 0 ? world.all_reduce(elements(a)) : copy.all_reduce(elements(b));
    second.wait();
    first.wait();
    EXPECT_EQ(a[0], 3);
    EXPECT_EQ(b[0], 6);
  });
}

}  // namespace
}  // namespace sprat
