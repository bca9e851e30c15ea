// What a rank knows of its local peers, from their control blocks.
#include "collectives/engine/local_peers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/communicator_impl.hpp"

namespace sprat::collectives {
namespace {

/// Of a communicator that nobody has made yet: where its control blocks lie.
Membership membership_in(Communicator& world) {
  comm::Context& context = *world.impl().context;
  std::uint64_t offset = 0;
  {
    const auto token = context.take_token();
    offset = context.allocate_control(sizeof(ControlBlock));
    reinterpret_cast<ControlBlock*>(context.control(offset))->clear();
  }
  std::vector<std::uint64_t> offsets(2);
  world.all_gather(elements(std::span(&offset, 1)), elements(offsets)).wait();
  return {.id = 77,
          .domain = 77,
          .name = "group",
          .rank = world.rank(),
          .world_ranks = {0, 1},
          .control_blocks = {offsets[0], offsets[1]}};
}

/// A root may broadcast, and free the communicator, before its peer has made it: the control block
/// must stay for the peer, who reads the broadcast there.
TEST(LocalPeers, who_has_not_come_yet_has_not_left) {
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    Communicator::Impl& impl = world.impl();
    comm::Context& context = *impl.context;
    const Membership membership = membership_in(world);
    if (world.rank() == 0) {
      std::function<bool()> unused;
      {
        LocalPeers peers(context, membership, *impl.grouping);
        peers.complete(0);
        unused = peers.all_completed_or_left(1);
      }
      EXPECT_FALSE(unused()) << "rank 1 is still making it";
      world.barrier();
      world.barrier();
      EXPECT_FALSE(unused()) << "rank 1 has made it, and called nothing";
      world.barrier();
      world.barrier();
      EXPECT_TRUE(unused()) << "rank 1 has completed the call";
      return;
    }
    world.barrier();
    LocalPeers peers(context, membership, *impl.grouping);
    world.barrier();
    world.barrier();
    peers.complete(0);
    world.barrier();
  });
}

/// Whether this rank has looked before or not.
TEST(LocalPeers, who_came_and_left_has_left) {
  for (const bool looks : {false, true}) {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      Communicator::Impl& impl = world.impl();
      const Membership membership = membership_in(world);
      LocalPeers peers(*impl.context, membership, *impl.grouping);
      const auto unused = peers.all_completed_or_left(1);
      world.barrier();
      if (looks && world.rank() == 0) {
        EXPECT_FALSE(unused());
      }
      world.barrier();
      if (world.rank() == 1) {
        peers.leave();
      }
      world.barrier();
      if (world.rank() == 0) {
        EXPECT_TRUE(unused());
      }
      world.barrier();
    });
  }
}

/// One that is as far ahead as it may looks seldom from then on, and takes from them seldom what
/// they count their calls in.
TEST(LocalPeers, who_was_too_far_ahead_waits_until_half_is_caught_up) {
  constexpr std::uint64_t depth = ControlBlock::slots, half = depth / 2;
  constexpr std::size_t bytes = Slot::short_bytes;
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    Communicator::Impl& impl = world.impl();
    const Membership membership = membership_in(world);
    LocalPeers peers(*impl.context, membership, *impl.grouping);
    world.barrier();
    for (const std::uint64_t completed : {std::uint64_t{0}, std::uint64_t{1}, half, half + 1}) {
      if (world.rank() == 1 && completed > 0) {
        peers.complete(completed - 1);
      }
      world.barrier();
      if (world.rank() == 0) {
        EXPECT_TRUE(peers.may_open(depth - 1, bytes));
        EXPECT_EQ(peers.may_open(depth, bytes), completed > half) << completed;
        EXPECT_EQ(peers.behind(depth, bytes).empty(), completed > half) << completed;
      }
      world.barrier();
    }
    if (world.rank() == 0) {
      EXPECT_TRUE(peers.may_open(depth + half, bytes));
      EXPECT_FALSE(peers.may_open(depth + half + 1, bytes));
    }
    world.barrier();
  });
}

}  // namespace
}  // namespace sprat::collectives
