// Sends and receives: from any source, batched, far ahead of their receives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <latch>
#include <numeric>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// Ranks that share memory, and ranks on hosts of their own.
const std::vector<const char*> placements = {"", "a,b,c,d", "a,a,b,b"};

void on_each_placement(int ranks, const std::function<void(Communicator&)>& body) {
  for (const char* hosts : placements) {
    SCOPED_TRACE(hosts);
    Config config;
    config.host = hosts;
    run_virtual_ranks(ranks, config, body);
  }
}

std::int32_t receive_from_any(Communicator& world, int tag, int& source) {
  std::vector<std::int32_t> data(1);
  Work work = world.recv(elements(data), any_source, tag);
  work.wait();
  source = work.source();
  return data[0];
}

TEST(AnySource, gets_each_message_once_and_says_whose) {
  on_each_placement(4, [](Communicator& world) {
    if (world.rank() != 0) {
      for (std::int32_t i = 0; i < 5; ++i) {
        std::vector<std::int32_t> data = {100 * world.rank() + i};
        world.send(elements(data), 0, 7).wait();
      }
      return;
    }
    std::vector<int> next(4, 0);
    for (int i = 0; i < 15; ++i) {
      int source = -1;
      const std::int32_t value = receive_from_any(world, 7, source);
      ASSERT_GE(source, 1);
      // In order from each.
      EXPECT_EQ(value, 100 * source + next[static_cast<std::size_t>(source)]++);
    }
    EXPECT_THAT(next, ::testing::ElementsAre(0, 5, 5, 5));
  });
}

TEST(AnySource, looks_only_at_its_tag_and_communicator) {
  on_each_placement(3, [](Communicator& world) {
    Communicator copy = world.duplicate();
    std::vector<std::int32_t> data = {world.rank()};
    if (world.rank() == 1) {
      world.send(elements(data), 0, 1).wait();
      copy.send(elements(data), 0, 2).wait();
    } else if (world.rank() == 2) {
      world.send(elements(data), 0, 2).wait();
    } else {
      int source = -1;
      EXPECT_EQ(receive_from_any(world, 2, source), 2);
      EXPECT_EQ(source, 2);
      EXPECT_EQ(receive_from_any(copy, 2, source), 1);
      EXPECT_EQ(receive_from_any(world, 1, source), 1);
    }
    copy.barrier();
  });
}

TEST(Messages, say_that_their_communicator_is_gone_and_harm_no_other) {
  on_each_placement(2, [](Communicator& world) {
    std::vector<std::int32_t> data = {world.rank()};
    Work work;
    {
      Communicator copy = world.duplicate();
      if (world.rank() == 0) {
        work = copy.recv(elements(data), 1, 5);
      }
    }
    try {
      work.wait();
      EXPECT_EQ(world.rank(), 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_THAT(error.what(), HasSubstr("its communicator is gone"));
    }
    world.all_reduce(elements(data)).wait();
    EXPECT_EQ(data[0], 1);
  });
}

TEST(AnySource, and_named_receives_get_messages_in_the_order_of_the_calls) {
  on_each_placement(2, [](Communicator& world) {
    std::vector<std::int32_t> a = {-1}, b = {-1}, c = {-1};
    if (world.rank() == 0) {
      Work first = world.recv(elements(a), any_source, 3);
      Work second = world.recv(elements(b), 1, 3);
      Work third = world.recv(elements(c), any_source, 3);
      world.barrier();
      third.wait();
      second.wait();
      first.wait();
      EXPECT_EQ(a[0], 0);
      EXPECT_EQ(b[0], 1);
      EXPECT_EQ(c[0], 2);
    } else {
      world.barrier();
      for (std::int32_t i = 0; i < 3; ++i) {
        std::vector<std::int32_t> data = {i};
        world.send(elements(data), 0, 3).wait();
      }
    }
  });
}

TEST(AnySource, takes_from_all_who_have_sent_in_turn) {
  run_virtual_ranks(4, Config(), [](Communicator& world) {
    constexpr int each = 4;
    std::vector<std::int32_t> data(1);
    for (int i = 0; i < each && world.rank() != 0; ++i) {
      world.send(elements(data), 0, 5).wait();
    }
    world.barrier();
    std::vector<int> sources;
    for (int i = 0; i < 3 * each && world.rank() == 0; ++i) {
      int source = -1;
      receive_from_any(world, 5, source);
      sources.push_back(source);
    }
    for (std::size_t i = 3; i < sources.size(); ++i) {
      EXPECT_EQ(sources[i], sources[i - 3]) << "message " << i;
    }
  });
}

// Rank 0 never has to wait, and so nothing but its receives drives the wire.
TEST(AnySource, does_not_starve_other_hosts_while_this_one_sends) {
  constexpr int near = 400, far = 5;
  std::latch connected(1), sent(2);
  Config config;
  config.host = "a,a,b";
  run_virtual_ranks(3, config, [&](Communicator& world) {
    std::vector<std::int32_t> data = {world.rank()};
    if (world.rank() == 2) {  // connects
      world.send(elements(data), 0, 4).wait();
    } else if (world.rank() == 0) {
      world.recv(elements(data), 2, 4).wait();
      connected.count_down();
    }
    connected.wait();
    for (int i = 0; i < (world.rank() == 1 ? near : far) && world.rank() != 0; ++i) {
      world.send(elements(data), 0, 5).wait();
    }
    if (world.rank() != 0) {
      sent.count_down();
      return;
    }
    sent.wait();
    int before = 0;
    for (int source = 1; source != 2; ++before) {
      receive_from_any(world, 5, source);
    }
    EXPECT_LT(before, near);
    for (int source = 0; before < near + far; ++before) {
      receive_from_any(world, 5, source);
    }
  });
}

TEST(AnySource, takes_long_messages) {
  on_each_placement(2, [](Communicator& world) {
    std::vector<std::int32_t> data(1 << 20);
    if (world.rank() == 0) {
      std::iota(data.begin(), data.end(), 5);
      world.send(elements(data), 1).wait();
    } else {
      world.recv(elements(data), any_source).wait();
      EXPECT_EQ(data.front(), 5);
      EXPECT_EQ(data.back(), (1 << 20) + 4);
    }
  });
}

// The longest time that there is was before now, once it was added to now.
TEST(Messages, wait_for_ever_if_they_are_told_to) {
  on_each_placement(2, [](Communicator& world) {
    const Options patient{.timeout = std::chrono::milliseconds::max()};
    std::vector<std::int32_t> data = {world.rank()};
    if (world.rank() == 0) {
      // A deadline that has passed is told of after almost a second.
      std::this_thread::sleep_for(1200ms);
      world.send(elements(data), 1, 0, patient).wait();
    } else {
      world.recv(elements(data), 0, 0, patient).wait();
      EXPECT_EQ(data[0], 0);
    }
    world.all_reduce(elements(data), ReduceOp::sum, patient).wait();
  });
}

TEST(AnySource, ends_at_its_deadline) {
  try {
    run_virtual_ranks(2, Config(), [](Communicator& world) {
      std::vector<std::int32_t> data(1);
      if (world.rank() == 0) {
        world.recv(elements(data), any_source, 4, {.timeout = 30ms}).wait();
      }
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("recv from any rank with tag 4"));
  }
}

TEST(AnySource, ends_when_the_job_fails) {
  EXPECT_THROW(run_virtual_ranks(2, Config(),
                                 [](Communicator& world) {
                                   std::vector<std::int32_t> data(1);
                                   if (world.rank() == 0) {
                                     world.recv(elements(data), any_source).wait();
                                   } else {
                                     world.abort("enough");
                                   }
                                 }),
               Error);
}

TEST(WaitAny, returns_each_work_as_it_ends) {
  on_each_placement(3, [](Communicator& world) {
    std::vector<std::int32_t> data(2, -1);
    if (world.rank() != 0) {
      if (world.rank() == 1) {  // after rank 2's has been waited for
        world.recv({data.data(), 1, DType::i32}, 0, 9).wait();
      }
      data[0] = world.rank();
      world.send({data.data(), 1, DType::i32}, 0).wait();
      return;
    }
    std::vector<Work> works;
    works.push_back(world.recv({&data[0], 1, DType::i32}, 1));
    works.push_back(world.recv({&data[1], 1, DType::i32}, 2));
    EXPECT_EQ(wait_any(works), 1u);
    EXPECT_EQ(data[1], 2);
    EXPECT_FALSE(works[0].done());
    world.send({data.data(), 1, DType::i32}, 1, 9).wait();
    works.erase(works.begin() + 1);
    EXPECT_EQ(wait_any(works), 0u);
    EXPECT_EQ(data[0], 1);
  });
}

TEST(WaitAny, of_nothing_is_refused) { EXPECT_THROW(wait_any({}), Error); }

TEST(AllOf, is_done_when_all_are) {
  on_each_placement(4, [](Communicator& world) {
    // Everybody to everybody, receives after sends: a batch cannot block itself.
    const auto size = static_cast<std::size_t>(world.size());
    std::vector<std::vector<std::int32_t>> out(size), in(size);
    std::vector<Work> works;
    for (std::size_t peer = 0; peer < size; ++peer) {
      out[peer].assign(50'000, world.rank());
      in[peer].assign(50'000, -1);
      works.push_back(world.send(elements(out[peer]), static_cast<int>(peer), 1));
    }
    for (std::size_t peer = 0; peer < size; ++peer) {
      works.push_back(world.recv(elements(in[peer]), static_cast<int>(peer), 1));
    }
    Work all = all_of(std::move(works));
    while (!all.test()) {
    }
    for (std::size_t peer = 0; peer < size; ++peer) {
      EXPECT_EQ(in[peer], std::vector<std::int32_t>(50'000, static_cast<std::int32_t>(peer)));
    }
  });
}

TEST(AllOf, throws_the_first_error_when_nothing_is_under_way) {
  EXPECT_THROW(run_virtual_ranks(2, Config(),
                                 [](Communicator& world) {
                                   std::vector<std::int32_t> a(4), b(8);
                                   std::vector<Work> works;
                                   works.push_back(world.all_reduce(elements(a)));
                                   works.push_back(world.all_reduce(
                                       world.rank() == 0 ? elements(a) : elements(b)));
                                   all_of(std::move(works)).wait();
                                 }),
               Error);
}

/// Two million bytes before the first receive, matched backwards.
TEST(Messages, far_ahead_of_their_receives_wait_for_credit) {
  on_each_placement(2, [](Communicator& world) {
    constexpr std::int32_t count = 500;
    std::vector<std::vector<std::int32_t>> data(count, std::vector<std::int32_t>(1'000));
    if (world.rank() == 0) {
      std::vector<Work> works;
      for (std::int32_t i = 0; i < count; ++i) {
        std::ranges::fill(data[static_cast<std::size_t>(i)], i);
        works.push_back(world.send(elements(data[static_cast<std::size_t>(i)]), 1, i));
      }
      world.barrier();
      all_of(std::move(works)).wait();
    } else {
      world.barrier();  // of other memory: unmatched messages block nothing
      for (std::int32_t i = count - 1; i >= 0; --i) {
        auto& part = data[static_cast<std::size_t>(i)];
        world.recv(elements(part), 0, i).wait();
        ASSERT_EQ(part, std::vector<std::int32_t>(1'000, i));
      }
    }
  });
}

/// Its buffer must stay, its communicator and its Work need not.
TEST(Messages, sent_before_a_rank_leaves_arrive) {
  on_each_placement(2, [](Communicator& world) {
    static std::vector<std::int32_t> out(1 << 18, 6);  // outlives the sender's thread
    if (world.rank() == 0) {
      Communicator copy = world.duplicate();
      copy.send(elements(out), 1);
    } else {
      Communicator copy = world.duplicate();
      std::this_thread::sleep_for(20ms);  // so that the sender leaves first
      std::vector<std::int32_t> in(out.size());
      copy.recv(elements(in), 0).wait();
      EXPECT_EQ(in, out);
    }
  });
}

/// The root needs nobody for it, so the others may not have called it when it is gone.
TEST(Messages, of_a_broadcast_arrive_though_its_root_has_left) {
  on_each_placement(2, [](Communicator& world) {
    std::vector<std::int32_t> data(2, world.rank() == 0 ? 6 : 0);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(200ms);
    }
    world.broadcast(elements(data), 0);
    EXPECT_EQ(data, std::vector<std::int32_t>(2, 6));
  });
}

}  // namespace
}  // namespace sprat
