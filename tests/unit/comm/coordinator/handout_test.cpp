// What travels once to each host: whoever leads, reads, fails or is slow, each rank gets the parts
// once.
#include "comm/coordinator/handout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t enough = Handout::least_bytes;

/// Ranks 0, 2, 4, 5 are of one host, 1 and 3 of another, 6 is alone, 7 shares with nobody.
struct HandoutScene {
  HandoutScene() : handout(8) {
    const std::vector<std::uint64_t> hosts = {7, 9, 7, 9, 7, 7, 8, 0};
    for (int rank = 0; rank < 8; ++rank) {
      handout.shares_on(rank, hosts[static_cast<std::size_t>(rank)]);
    }
  }
  void give(std::size_t bytes = enough, std::uint64_t ordinal = 3) {
    note(handout.give(Parts{ordinal, {Blob(4)}}, {0, 1, 2, 3, 4, 5, 6, 7}, bytes, now));
  }
  void placed(int rank, const PartsPlace& place) { note(handout.placed(rank, place, now)); }
  void taken(int rank, std::uint8_t read) { note(handout.taken(rank, {3, read}, now)); }
  /// Whatever is due within `time` from now happens.
  void pass(std::chrono::milliseconds time) {
    now += time;
    note(handout.tick(now));
  }
  /// Counts the parts that each rank gets, keeps the rest.
  void note(const std::vector<FrameTo>& said) {
    for (const FrameTo& one : said) {
      for (const int rank : one.to) {
        parts[rank] += std::holds_alternative<Parts>(one.frame) ? 1 : 0;
      }
      if (const auto* place = std::get_if<PartsPlace>(&one.frame)) {
        (place->descriptor < 0 ? asked : told) = one.to;
      }
      if (std::holds_alternative<PartsTaken>(one.frame)) {
        freed = one.to;
      }
    }
  }
  std::vector<int> served() const {
    std::vector<int> ranks;
    for (const auto& [rank, times] : parts) {
      EXPECT_LE(times, 1) << rank;
      if (times > 0) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

  Handout handout;
  Handout::Time now = Handout::Time{} + 100s;
  std::map<int, int> parts;
  std::vector<int> asked, told, freed;
};

PartsPlace place_of(std::uint64_t ordinal, int descriptor = 5) {
  return {.ordinal = ordinal, .pid = 1, .descriptor = descriptor, .inode = 2, .bytes = 4096};
}

TEST(Handout, gives_short_parts_to_every_rank) {
  HandoutScene scene;
  scene.give(enough - 1);
  EXPECT_THAT(scene.served(), SizeIs(8));
  EXPECT_THAT(scene.asked, IsEmpty());
  EXPECT_EQ(scene.handout.deadline(), std::nullopt);
}

TEST(Handout, gives_long_parts_to_one_rank_of_each_host_and_tells_the_others_where_they_are) {
  HandoutScene scene;
  scene.give();
  EXPECT_THAT(scene.asked, ElementsAre(0, 1));
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 6, 7));
  scene.placed(0, place_of(3));
  EXPECT_THAT(scene.told, ElementsAre(2, 4, 5));
  scene.placed(1, place_of(3));
  EXPECT_THAT(scene.told, ElementsAre(3));
  for (const int rank : {5, 2}) {
    EXPECT_THAT(scene.handout.taken(rank, {3, 1}, scene.now), IsEmpty());
  }
  scene.taken(4, 1);
  EXPECT_THAT(scene.freed, ElementsAre(0));
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 6, 7));
  EXPECT_EQ(scene.handout.deadline(), std::nullopt);
}

// Packing the frame is what costs, so all who need it get it together.
TEST(Handout, gives_parts_to_whoever_cannot_read_them_there) {
  HandoutScene scene;
  scene.give();
  scene.placed(0, place_of(3));
  scene.taken(4, 0);
  EXPECT_EQ(scene.handout.deadline(), scene.now + Handout::lull);
  scene.taken(4, 0);                 // says it again
  scene.placed(1, place_of(3, -1));  // has no memory for it
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 6, 7));
  const auto said = scene.handout.tick(scene.now + Handout::lull);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0].to, ElementsAre(3, 4));
  scene.note(said);
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 3, 4, 6, 7));

  // Who could not, need not try again. The others of its host do as before.
  scene.parts.clear();
  scene.give(enough, 4);
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 4, 6, 7));
  scene.placed(0, place_of(4));
  EXPECT_THAT(scene.told, ElementsAre(2, 5));
}

TEST(Handout, does_not_wait_for_a_leader_that_is_slow) {
  HandoutScene scene;
  scene.give();
  scene.placed(1, place_of(3));
  ASSERT_EQ(scene.handout.deadline(), scene.now + Handout::patience);
  scene.pass(Handout::patience - 1ms);
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 6, 7));
  scene.pass(1ms);
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 2, 4, 5, 6, 7));
  EXPECT_EQ(scene.handout.deadline(), std::nullopt);
  scene.told.clear();
  scene.placed(0, place_of(3));  // now it comes
  EXPECT_THAT(scene.told, IsEmpty());
  EXPECT_THAT(scene.freed, ElementsAre(0));
}

TEST(Handout, does_not_wait_for_who_has_gone) {
  HandoutScene scene;
  scene.give();
  EXPECT_THAT(scene.handout.gone(6), IsEmpty());
  scene.note(scene.handout.gone(0));  // led, and had not shared
  scene.pass(0ms);
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 2, 4, 5, 6, 7));
  scene.placed(1, place_of(3));
  EXPECT_THAT(scene.handout.gone(1), IsEmpty());  // led, and had shared: rank 3 finds out
  scene.taken(3, 0);
  scene.pass(Handout::lull);
  EXPECT_THAT(scene.served(), SizeIs(8));
  EXPECT_EQ(scene.handout.deadline(), std::nullopt);

  HandoutScene other;
  other.give();
  other.placed(1, place_of(3));
  other.note(other.handout.gone(3));
  EXPECT_THAT(other.freed, ElementsAre(1));
}

// Nobody hears any more who has not got them.
TEST(Handout, gives_the_parts_to_whoever_may_not_have_them_when_it_ends) {
  HandoutScene scene;
  scene.give();
  scene.placed(0, place_of(3));
  scene.taken(2, 1);
  scene.taken(4, 0);
  scene.note(scene.handout.rest());
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 3, 4, 5, 6, 7));
  EXPECT_EQ(scene.handout.deadline(), std::nullopt);
  EXPECT_THAT(scene.handout.rest(), IsEmpty());
}

TEST(Handout, hears_nothing_from_who_was_not_asked) {
  HandoutScene scene;
  scene.give();
  for (const int rank : {2, 6, 7}) {
    scene.placed(rank, place_of(3));
  }
  scene.placed(0, place_of(2));  // of another exchange
  EXPECT_THAT(scene.told, IsEmpty());
  EXPECT_THAT(scene.handout.taken(2, {3, 0}, scene.now), IsEmpty());  // has not been told
  EXPECT_THAT(scene.served(), ElementsAre(0, 1, 6, 7));
}

}  // namespace
}  // namespace sprat::comm
