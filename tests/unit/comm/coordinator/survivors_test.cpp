// Who goes on after a failure, and the coordinator that gathers them.
#include "comm/coordinator/survivors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "comm/coordinator/coordinator.hpp"

namespace sprat::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Time = Coordinator::Time;

Blob of(std::uint32_t generation, std::vector<int> members) {
  return encode(Testimony{generation, std::move(members)});
}

Part part(Blob testimony, std::uint64_t patience_ms = 1000) {
  return {1, patience_ms, "shrinking", std::move(testimony)};
}

/// The blobs of the Parts that were sent, if any were.
std::optional<std::vector<Blob>> parts_in(const std::vector<Coordinator::Output>& outputs) {
  for (const Coordinator::Output& output : outputs) {
    if (const auto* parts = std::get_if<Parts>(&output.frame)) {
      return parts->blobs;
    }
  }
  return std::nullopt;
}

TEST(Survivors, are_those_who_came) {
  EXPECT_THAT(survivors({of(0, {0, 1, 2}), {}, of(0, {0, 1, 2})}), ElementsAre(0, 2));
  EXPECT_THAT(survivors({{}, {}}), IsEmpty());
}

TEST(Survivors, do_not_take_back_whom_an_earlier_shrink_left_behind) {
  EXPECT_THAT(survivors({{}, of(0, {0, 1, 2, 3}), of(1, {0, 2, 3}), of(0, {0, 1, 2, 3})}),
              ElementsAre(2, 3));
}

TEST(Survivors, of_thousands_say_so_in_few_bytes) {
  std::vector<int> members(16'384);
  std::iota(members.begin(), members.end(), 0);
  std::erase(members, 77);
  const Blob blob = of(3, members);
  EXPECT_LE(blob.size(), 20u);
  EXPECT_EQ(decode_testimony(blob), (Testimony{3, members}));
}

TEST(Survivors, ignore_what_is_no_testimony) {
  EXPECT_THAT(survivors({of(0, {0, 1}), Blob(3)}), ElementsAre(0));
}

TEST(Coordinator, of_survivors_waits_for_those_that_may_live) {
  Coordinator coordinator(4, {}, Coordinator::Quorum::survivors);
  const Blob all = of(0, {0, 1, 2, 3});
  for (const int rank : {1, 3}) {
    EXPECT_FALSE(coordinator.admit({rank, 4, {}}, "test"));
  }
  for (const int rank : {1, 3}) {
    EXPECT_TRUE(coordinator.received(rank, part(all), Time{}));
  }
  EXPECT_THAT(coordinator.awaited(), ElementsAre(0, 2));
  coordinator.excuse(0);
  EXPECT_EQ(parts_in(coordinator.take()), std::nullopt) << "rank 2 may still come";
  coordinator.excuse(2);
  EXPECT_EQ(parts_in(coordinator.take()), (std::vector<Blob>{{}, all, {}, all}));
  EXPECT_EQ(coordinator.take_renumbering(), (std::vector<int>{1, 3}));
  EXPECT_EQ(coordinator.size(), 2);
}

TEST(Coordinator, of_survivors_takes_whom_it_had_given_up_if_he_comes) {
  Coordinator coordinator(2, {}, Coordinator::Quorum::survivors);
  coordinator.admit({0, 2, {}}, "test");
  coordinator.excuse(1);
  EXPECT_FALSE(coordinator.admit({1, 2, {}}, "test"));
  coordinator.received(0, part(of(0, {0, 1})), Time{});
  coordinator.received(1, part(of(0, {0, 1})), Time{});
  EXPECT_EQ(coordinator.take_renumbering(), (std::vector<int>{0, 1}));
}

TEST(Coordinator, of_survivors_leaves_behind_who_is_late) {
  Coordinator coordinator(3, {}, Coordinator::Quorum::survivors);
  for (const int rank : {0, 2}) {
    coordinator.admit({rank, 3, {}}, "test");
  }
  coordinator.received(0, part(of(0, {0, 1, 2})), Time{});
  coordinator.tick(Time{} + std::chrono::seconds(2));
  EXPECT_EQ(coordinator.take_renumbering(), (std::vector<int>{0}));
  const auto refusal = coordinator.admit({1, 3, {}}, "test");
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->text, ::testing::HasSubstr("went on without rank 1"));
}

TEST(Coordinator, of_survivors_knows_who_comes_for_the_next_shrink) {
  Coordinator coordinator(3, {}, Coordinator::Quorum::survivors);
  for (const int rank : {0, 2}) {
    coordinator.admit({rank, 3, {}}, "test");
  }
  EXPECT_FALSE(coordinator.awaits_next_shrink({1, 3, {}})) << "it may still come";
  coordinator.received(0, part(of(0, {0, 1, 2})), Time{});
  coordinator.received(2, part(of(0, {0, 1, 2})), Time{});
  coordinator.excuse(1);
  EXPECT_TRUE(coordinator.awaits_next_shrink({2, 3, {}}));
  EXPECT_FALSE(coordinator.awaits_next_shrink({1, 3, {}})) << "the others went on without it";
  coordinator.ended(1, "killed");  // rank 2 before
  EXPECT_TRUE(coordinator.awaits_next_shrink({1, 3, {}})) << "they may not have gone on";
}

TEST(Coordinator, of_survivors_goes_on_when_one_dies_meanwhile) {
  Coordinator coordinator(3, {}, Coordinator::Quorum::survivors);
  for (const int rank : {0, 1, 2}) {
    coordinator.admit({rank, 3, {}}, "test");
  }
  for (const int rank : {0, 1}) {
    coordinator.received(rank, part(of(0, {0, 1, 2})), Time{});
  }
  coordinator.ended(1, "killed");
  coordinator.received(2, part(of(0, {0, 1, 2})), Time{});
  EXPECT_EQ(coordinator.take_renumbering(), (std::vector<int>{0, 2}));
}

TEST(Coordinator, of_survivors_is_a_strict_one_afterwards) {
  Coordinator coordinator(3, {}, Coordinator::Quorum::survivors);
  for (const int rank : {0, 2}) {
    coordinator.admit({rank, 3, {}}, "test");
  }
  coordinator.excuse(1);
  for (const int rank : {0, 2}) {
    coordinator.received(rank, part(of(0, {0, 1, 2})), Time{});
  }
  coordinator.take();
  coordinator.ended(1, "killed");  // rank 2 before
  const auto outputs = coordinator.take();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_THAT(outputs[0].to, ElementsAre(0));
  EXPECT_EQ(std::get<ControlMessage>(outputs[0].frame).kind, ControlMessage::Kind::lost);
}

/// Whatever happens in whatever order: one renumbering, of those whose part is in, once nobody is
/// awaited.
TEST(Coordinator, of_survivors_ends_whatever_happens) {
  constexpr int size = 5;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    Coordinator coordinator(size, {}, Coordinator::Quorum::survivors);
    std::vector<int> came;
    std::vector<int> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::optional<std::vector<int>> kept;
    for (const int rank : order) {
      ASSERT_FALSE(kept) << "seed " << seed;
      const auto fate = random() % 4;
      if (fate == 0) {
        coordinator.excuse(rank);
      } else {
        coordinator.admit({rank, size, {}}, "test");
        if (fate > 1) {
          coordinator.received(rank, part(of(0, {0, 1, 2, 3, 4})), Time{});
        }
        kept = coordinator.take_renumbering();
        if (fate == 3 || kept) {
          came.push_back(rank);
        }
        if (fate < 3) {
          coordinator.ended(rank, "killed");
        }
      }
      if (!kept) {
        kept = coordinator.take_renumbering();
      }
    }
    std::ranges::sort(came);
    EXPECT_EQ(kept.value_or(std::vector<int>{}), came) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sprat::comm
