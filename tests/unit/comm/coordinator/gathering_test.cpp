// Who is left of a communicator, as the coordinator tells all of them.
#include "comm/coordinator/gathering.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/base/rank_ranges.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Blob rank_blob(int value) { return {static_cast<std::byte>(value)}; }

/// Rounds of a job of four, at a time of our own.
struct GatheringScene {
  void come(int rank, const std::vector<int>& members, std::uint64_t round = 0,
            std::uint64_t patience_ms = 1000) {
    ControlMessage message;
    message.kind = ControlMessage::Kind::gather;
    message.comm = 7;
    message.sequence = round;
    message.payload = encode(GatherPart{patience_ms, encode_ranks(members), rank_blob(rank)});
    gatherings.came(rank, message, 4, now);
  }
  std::vector<Gatherings::Answer> settle() { return gatherings.settle(gone); }

  Gatherings gatherings;
  Gatherings::Time now = Gatherings::Time{} + 100s;
  std::vector<bool> gone = {false, false, false, false};
};

std::vector<int> who_came(const Gatherings::Answer& answer) {
  const auto result = decode_gather_result(answer.message.payload);
  return result ? result->ranks : std::vector<int>{-1};
}

TEST(Gatherings, answer_all_members_once_all_have_come) {
  GatheringScene scene;
  scene.come(3, {0, 1, 3});
  scene.come(0, {0, 1, 3});
  EXPECT_THAT(scene.settle(), IsEmpty());
  scene.come(1, {0, 1, 3});
  const auto answers = scene.settle();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(answers[0].to, UnorderedElementsAre(0, 1, 3));
  EXPECT_EQ(answers[0].message.comm, 7u);
  const auto result = decode_gather_result(answers[0].message.payload);
  ASSERT_TRUE(result);
  EXPECT_THAT(result->ranks, ElementsAre(0, 1, 3));
  EXPECT_THAT(result->blobs, ElementsAre(rank_blob(0), rank_blob(1), rank_blob(3)));
  EXPECT_THAT(scene.settle(), IsEmpty());
}

TEST(Gatherings, do_not_wait_for_the_gone) {
  GatheringScene scene;
  scene.come(0, {0, 1, 3});
  scene.come(1, {0, 1, 3});
  EXPECT_THAT(scene.settle(), IsEmpty());
  scene.gone[3] = true;
  const auto answers = scene.settle();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(who_came(answers[0]), ElementsAre(0, 1));
}

TEST(Gatherings, do_not_count_who_came_and_has_gone_since) {
  GatheringScene scene;
  scene.come(3, {0, 1, 3});
  scene.gone[3] = true;
  scene.come(0, {0, 1, 3});
  scene.come(1, {0, 1, 3});
  const auto answers = scene.settle();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(who_came(answers[0]), ElementsAre(0, 1));
}

TEST(Gatherings, leave_behind_who_does_not_come_in_time_and_tell_it) {
  GatheringScene scene;
  scene.come(0, {0, 1, 3}, 0, 5000);
  scene.come(1, {0, 1, 3}, 0, 1000);
  EXPECT_EQ(scene.gatherings.deadline(), scene.now + 1s);
  scene.now += 1s;
  scene.gatherings.expire(scene.now);
  EXPECT_THAT(who_came(scene.settle().at(0)), ElementsAre(0, 1));
  EXPECT_EQ(scene.gatherings.deadline(), std::nullopt);
  scene.come(3, {0, 1, 3});
  const auto late = scene.settle();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_THAT(late[0].to, ElementsAre(3));
  EXPECT_THAT(who_came(late[0]), ElementsAre(0, 1));
}

TEST(Gatherings, tell_rounds_apart) {
  GatheringScene scene;
  scene.come(0, {0, 1}, 0);
  scene.come(1, {0, 1}, 1);
  EXPECT_THAT(scene.settle(), IsEmpty());
}

TEST(Gatherings, drop_what_makes_no_sense) {
  GatheringScene scene;
  scene.come(2, {0, 1});     // it is no member
  scene.come(0, {0, 1, 9});  // there is no rank 9
  ControlMessage message;
  message.payload = {std::byte{1}, std::byte{2}};
  scene.gatherings.came(0, message, 4, scene.now);
  EXPECT_THAT(scene.settle(), IsEmpty());
  EXPECT_EQ(scene.gatherings.deadline(), std::nullopt);
}

TEST(Gatherings, read_back_what_they_write_and_nothing_shorter) {
  const GatherPart part{30, rank_blob(4), rank_blob(9)};
  const GatherResult result{{1, 5}, {rank_blob(1), rank_blob(5)}};
  EXPECT_EQ(decode_gather_part(encode(part)), part);
  EXPECT_EQ(decode_gather_result(encode(result)), result);
  Blob cut = encode(part), cut_result = encode(result);
  while (!cut.empty()) {
    cut.pop_back();
    EXPECT_EQ(decode_gather_part(cut), std::nullopt) << cut.size();
  }
  while (!cut_result.empty()) {
    cut_result.pop_back();
    EXPECT_EQ(decode_gather_result(cut_result), std::nullopt) << cut_result.size();
  }
}

// Each of n ranks names all n: in few bytes, and reading them looks at each rank once.
TEST(Gatherings, of_many_ranks_take_little_from_each) {
  constexpr int ranks = 16'384;
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  members.erase(members.begin() + 5);
  ControlMessage message;
  message.kind = ControlMessage::Kind::gather;
  message.payload = encode(GatherPart{1000, encode_ranks(members), Blob(24)});
  EXPECT_LE(message.payload.size(), 100u);
  Gatherings gatherings;
  const std::vector<bool> gone(ranks, false);
  for (const int member : members) {
    EXPECT_THAT(gatherings.settle(gone), IsEmpty());
    gatherings.came(member, message, ranks, Gatherings::Time{} + 100s);
  }
  const auto answers = gatherings.settle(gone);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].to.size(), members.size());
  EXPECT_LE(answers[0].message.payload.size(), 200u);
  EXPECT_EQ(who_came(answers[0]), members);
}

TEST(Gatherings, keep_a_bounded_number_of_rounds) {
  GatheringScene scene;
  for (std::uint64_t round = 0; round < 10'000; ++round) {
    scene.come(0, {0}, round);
    ASSERT_EQ(scene.settle().size(), 1u) << round;
  }
}

}  // namespace
}  // namespace sprat::comm
