// The public collectives over ranks that are threads: every collective, type, op, size and layout.
#include "sprat/communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace sprat {
namespace {

using namespace std::chrono_literals;

struct Layout {
  const char* name;
  int ranks;
  const char* hosts;  ///< SPRAT_HOST: a comma list by rank.
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

const Layout layouts[] = {
    {"one", 1, ""},
    {"two", 2, ""},
    {"three", 3, ""},
    {"four", 4, ""},
    {"five", 5, ""},
    {"eight", 8, ""},
    {"two_hosts_of_two", 4, "a,a,b,b"},
    {"uneven_hosts", 5, "a,b,b,c,c"},
    {"round_robin_hosts", 4, "a,b,a,b"},
    {"one_rank_per_host", 3, "a,b,c"},
};

// Counts around the inline limit, the slice size and the staging windows.
constexpr std::size_t counts[] = {0, 1, 7, 64, 1000, 70'000, 700'001};

Config config_of(const Layout& layout) {
  Config config;
  config.host = layout.hosts;
  config.timeout = 60s;
  return config;
}

class Collectives : public testing::TestWithParam<Layout> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) {
    run_virtual_ranks(GetParam().ranks, config_of(GetParam()), body);
  }
};

/// Small integers, different for every rank and element: sums are exact in f32.
float value(int rank, std::size_t index) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50.0f;
}

std::vector<float> input_of(int rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = value(rank, i);
  }
  return data;
}

float sum_at(int ranks, std::size_t index) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += value(rank, index);
  }
  return sum;
}

template <class Expected>
std::size_t count_wrong(std::span<const float> got, const Expected& expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    wrong += got[i] != expected(i) ? 1 : 0;
  }
  return wrong;
}

TEST_P(Collectives, all_reduce_sums_in_place_and_not) {
  on_ranks([](Communicator& world) {
    for (const std::size_t count : counts) {
      const auto in = input_of(world.rank(), count);
      std::vector<float> out(count), same = in;
      world.all_reduce(elements(in), elements(out)).wait();
      world.all_reduce(elements(same)).wait();
      const auto expected = [&](std::size_t i) { return sum_at(world.size(), i); };
      EXPECT_EQ(count_wrong(out, expected), 0u) << "rank " << world.rank() << " count " << count;
      EXPECT_EQ(count_wrong(same, expected), 0u) << "rank " << world.rank() << " count " << count;
    }
  });
}

TEST_P(Collectives, all_gather_puts_every_part_at_its_block) {
  on_ranks([](Communicator& world) {
    for (const std::size_t count : counts) {
      const auto part = input_of(world.rank(), count);
      std::vector<float> whole(count * world.size()), same(count * world.size(), -1.0f);
      std::copy(part.begin(), part.end(),
                same.begin() + static_cast<std::ptrdiff_t>(count * world.rank()));
      world.all_gather(elements(part), elements(whole)).wait();
      world
          .all_gather(elements(std::span(same).subspan(count * world.rank(), count)),
                      elements(same))
          .wait();
      const auto expected = [&](std::size_t i) {
        return value(static_cast<int>(i / count), i % count);
      };
      EXPECT_EQ(count_wrong(whole, expected), 0u) << "rank " << world.rank() << " count " << count;
      EXPECT_EQ(count_wrong(same, expected), 0u) << "rank " << world.rank() << " count " << count;
    }
  });
}

TEST_P(Collectives, reduce_scatter_gives_each_rank_its_block) {
  on_ranks([](Communicator& world) {
    for (const std::size_t count : counts) {
      auto whole = input_of(world.rank(), count * world.size());
      std::vector<float> part(count);
      world.reduce_scatter(elements(std::as_const(whole)), elements(part)).wait();
      const auto mine = std::span(whole).subspan(count * world.rank(), count);
      world.reduce_scatter(elements(std::as_const(whole)), elements(mine)).wait();
      const auto expected = [&](std::size_t i) {
        return sum_at(world.size(), count * world.rank() + i);
      };
      EXPECT_EQ(count_wrong(part, expected), 0u) << "rank " << world.rank() << " count " << count;
      EXPECT_EQ(count_wrong(mine, expected), 0u) << "rank " << world.rank() << " count " << count;
    }
  });
}

TEST_P(Collectives, broadcast_from_every_root) {
  on_ranks([](Communicator& world) {
    for (const std::size_t count : counts) {
      for (int root = 0; root < world.size(); ++root) {
        auto data = input_of(world.rank() == root ? root : 77, count);
        world.broadcast(elements(data), root).wait();
        EXPECT_EQ(count_wrong(data, [&](std::size_t i) { return value(root, i); }), 0u)
            << "rank " << world.rank() << " root " << root << " count " << count;
      }
    }
  });
}

TEST_P(Collectives, all_to_all_transposes_in_place_and_not) {
  on_ranks([](Communicator& world) {
    for (const std::size_t count : counts) {
      const auto in = input_of(world.rank(), count * world.size());
      auto same = in;
      std::vector<float> out(in.size());
      world.all_to_all(elements(in), elements(out)).wait();
      world.all_to_all(elements(std::as_const(same)), elements(same)).wait();
      const auto expected = [&](std::size_t i) {
        return value(static_cast<int>(i / count), count * world.rank() + i % count);
      };
      EXPECT_EQ(count_wrong(out, expected), 0u) << "rank " << world.rank() << " count " << count;
      EXPECT_EQ(count_wrong(same, expected), 0u) << "rank " << world.rank() << " count " << count;
    }
  });
}

TEST_P(Collectives, shared_memory_gives_the_same_as_private) {
  on_ranks([](Communicator& world) {
    const std::size_t count = 300'000;
    Memory memory = allocate<float>(count);
    const auto in = input_of(world.rank(), count);
    std::copy(in.begin(), in.end(), memory.as<float>().begin());
    world.all_reduce(elements(memory.as<float>())).wait();
    EXPECT_EQ(
        count_wrong(memory.as<float>(), [&](std::size_t i) { return sum_at(world.size(), i); }),
        0u);
  });
}

TEST_P(Collectives, sends_meet_receives_by_tag_whatever_their_order) {
  on_ranks([](Communicator& world) {
    const int to = (world.rank() + 1) % world.size();
    const int from = (world.rank() + world.size() - 1) % world.size();
    for (const std::size_t count : counts) {
      const auto first = input_of(world.rank(), count);
      const auto second = input_of(world.rank() + 50, count);
      std::vector<float> got_first(count), got_second(count);
      Work sends[] = {world.send(elements(first), to, 1), world.send(elements(second), to, 2)};
      Work receives[] = {world.recv(elements(got_second), from, 2),
                         world.recv(elements(got_first), from, 1)};
      for (Work& work : receives) {
        work.wait();
      }
      for (Work& work : sends) {
        work.wait();
      }
      EXPECT_EQ(count_wrong(got_first, [&](std::size_t i) { return value(from, i); }), 0u);
      EXPECT_EQ(count_wrong(got_second, [&](std::size_t i) { return value(from + 50, i); }), 0u);
    }
  });
}

TEST_P(Collectives, many_operations_in_flight_end_in_order) {
  on_ranks([](Communicator& world) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 40; ++i) {
      data.push_back(input_of(world.rank(), i % 3 == 0 ? 5000 + i : i));
    }
    for (auto& buffer : data) {
      works.push_back(world.all_reduce(elements(buffer)));
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      EXPECT_EQ(count_wrong(data[i], [&](std::size_t k) { return sum_at(world.size(), k); }), 0u);
    }
  });
}

TEST_P(Collectives, split_makes_groups_that_work_alone_and_together) {
  on_ranks([](Communicator& world) {
    auto half = world.split(world.rank() % 2, -world.rank());
    ASSERT_TRUE(half);
    float ones = 1;
    half->all_reduce(elements(std::span(&ones, 1))).wait();
    EXPECT_EQ(ones, static_cast<float>(half->size()));
    float all = 1;
    world.all_reduce(elements(std::span(&all, 1))).wait();
    EXPECT_EQ(all, static_cast<float>(world.size()));
    const auto none = world.split(world.rank() == 0 ? 0 : -1);
    EXPECT_EQ(none.has_value(), world.rank() == 0);
  });
}

TEST_P(Collectives, nobody_passes_a_barrier_early) {
  std::atomic<int> arrived = 0;
  on_ranks([&](Communicator& world) {
    for (int round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);
      world.barrier();
      EXPECT_GE(arrived.load(), round * world.size());
      world.barrier();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(over_layouts, Collectives, testing::ValuesIn(layouts),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// Found by the simulation: what is inlined whole is read window by window.
TEST(Windows, read_inlined_inputs_where_they_are) {
  Config config;
  config.timeout = 60s;
  config.staging_bytes = 4096;
  run_virtual_ranks(3, config, [](Communicator& world) {
    auto data = input_of(world.rank(), 400);
    world.broadcast(elements(data), 1).wait();
    EXPECT_EQ(count_wrong(data, [](std::size_t i) { return value(1, i); }), 0u);
  });
}

// What is announced must hold for the plan that is chosen once all have announced: a short input
// was inlined by a plan that another one took the place of, and in place was not said beside it.
TEST(Announcements, hold_for_whichever_plan_is_chosen) {
  for (const char* rules : {"all_reduce apart=1 one_shot; all_reduce doubling",
                            "all_reduce apart=1 direct; all_reduce doubling"}) {
    for (const int in_place : {-1, 1}) {
      SCOPED_TRACE(testing::Message() << rules << ", in place on rank " << in_place);
      Config config;
      config.timeout = 10s;
      config.algorithm = rules;
      run_virtual_ranks(2, config, [&](Communicator& world) {
        for (int call = 0; call < 50; ++call) {
          auto data = input_of(world.rank(), 300);
          auto apart = data;
          auto& out = world.rank() == in_place ? data : apart;
          world.all_reduce(elements(std::as_const(data)), elements(out)).wait();
          ASSERT_EQ(count_wrong(out, [](std::size_t i) { return sum_at(2, i); }), 0u);
        }
      });
    }
  }
}

// A rank alone on its host shares nothing, and still cuts as the others do.
TEST(Windows, are_the_same_on_hosts_of_unequal_size) {
  Config config;
  config.timeout = 20s;
  config.host = "a,a,b";
  config.algorithm = "all_reduce one_shot";
  run_virtual_ranks(3, config, [](Communicator& world) {
    auto data = input_of(world.rank(), 2 << 20);
    world.all_reduce(elements(data)).wait();
    EXPECT_EQ(count_wrong(data, [](std::size_t i) { return sum_at(3, i); }), 0u);
  });
}

// The number of a window once had 16 bits: after those, what staging had held before was read.
TEST(Windows, may_be_more_than_65536) {
  Config config;
  config.timeout = 60s;
  config.host = "a,a,b";
  config.staging_bytes = 256;  // one window of 64 elements of one byte, in and out, and another
  run_virtual_ranks(3, config, [](Communicator& world) {
    std::vector<std::uint8_t> data(64 * 65'600);
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<std::uint8_t>((i / 64 % 251) << world.rank());
    }
    world.all_reduce(elements(data)).wait();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      wrong += data[i] != static_cast<std::uint8_t>(7 * (i / 64 % 251));
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST(Threads, several_use_communicators_of_their_own_at_once) {
  run_virtual_ranks(2, config_of(layouts[1]), [](Communicator& world) {
    std::vector<Communicator> groups;
    for (int i = 0; i < 3; ++i) {
      groups.push_back(*world.split(0));
    }
    std::vector<std::thread> threads;
    for (Communicator& group : groups) {
      threads.emplace_back([&group] {
        for (std::size_t count = 1; count < 3000; count += 97) {
          auto data = input_of(group.rank(), count);
          group.all_reduce(elements(data)).wait();
          EXPECT_EQ(count_wrong(data, [&](std::size_t i) { return sum_at(2, i); }), 0u);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
}

}  // namespace
}  // namespace sprat
