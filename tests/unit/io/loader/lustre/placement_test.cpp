// Where files lie, asked for when they are met, and never more than memory allows.
#include "io/loader/lustre/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/lustre/layout.hpp"
#include "tests/unit/io/loader/lustre/scripted_lustre.hpp"

namespace sprat::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t mebi = 1 << 20;

struct PlacedFolder : LustreFolder {
  explicit PlacedFolder(const std::vector<std::size_t>& bytes, std::size_t memory_bytes = mebi)
      : LustreFolder(bytes),
        placement(files, std::make_shared<LustreMounts>(lustre, std::nullopt), {true},
                  memory_bytes) {}

  Placement::Placed place(std::uint32_t file) {
    return placement.place(file, 1, [this](std::uint32_t one) { return open.open(one); });
  }

  Placement placement;
  OpenFiles open{[this](std::uint32_t file) { return files->known(file); }, {}};
};

TEST(Placement, layouts_come_with_the_numbers_that_lfs_gives_targets) {
  PlacedFolder folder({4 * mebi});
  folder.lustre->lay("a.bin", {3, 5});
  const Placement::Placed placed = folder.place(0);
  ASSERT_NE(placed.file.layout, nullptr);
  ASSERT_EQ(placed.file.layout->size(), 1u);
  EXPECT_EQ(placed.file.layout->front().stripe_bytes, mebi);
  EXPECT_THAT(placed.file.layout->front().targets, ElementsAre(3, 5));
  EXPECT_EQ(target_run(placed.file, mebi).target, 5);
  EXPECT_EQ(target_run(placed.file, mebi).end, 2 * mebi);
  EXPECT_FALSE(placed.released);
}

TEST(Placement, files_are_opened_when_they_are_met_and_asked_once) {
  PlacedFolder folder({100, 100, 100});
  for (const char* name : {"a.bin", "b.bin", "c.bin"}) {
    folder.lustre->lay(name, {1, 2});
  }
  folder.place(1);
  folder.place(1);
  folder.place(2);
  folder.place(1);
  EXPECT_EQ(folder.open.open_now(), 2u);
  EXPECT_EQ(folder.lustre->layout_questions(), 2);
  EXPECT_TRUE(folder.lustre->opens().empty()) << "the descriptor is the one that reads will use";
}

TEST(Placement, memory_keeps_what_was_used_last) {
  PlacedFolder folder({100, 100, 100}, 1);  // less than one layout: one is kept all the same
  for (const char* name : {"a.bin", "b.bin", "c.bin"}) {
    folder.lustre->lay(name, {1});
  }
  folder.place(0);
  folder.place(0);
  EXPECT_EQ(folder.lustre->layout_questions(), 1);
  folder.place(1);
  folder.place(0);
  EXPECT_EQ(folder.lustre->layout_questions(), 3);
}

TEST(Placement, what_is_not_known_has_a_target_of_its_source_and_a_reason) {
  PlacedFolder folder({100});
  const Placement::Placed placed = folder.place(0);
  EXPECT_EQ(target_run(placed.file, 0).target, unplaced_target(0));
  const PlacementNotes notes = folder.placement.notes();
  EXPECT_EQ(notes.unknown, 1u);
  EXPECT_THAT(notes.unknown_file, HasSubstr("a.bin"));
  EXPECT_EQ(notes.unknown_because, "nothing was ever written to it");
  EXPECT_NE(unplaced_target(0), unplaced_target(1));
}

TEST(Placement, a_file_that_cannot_be_opened_is_asked_again) {
  PlacedFolder folder({100});
  folder.lustre->lay("a.bin", {4});
  const auto fails = [](std::uint32_t) { return OpenFiles::Opened{.error = EIO}; };
  const Placement::Placed unknown = folder.placement.place(0, 1, fails);
  EXPECT_EQ(unknown.file.layout, nullptr);
  EXPECT_EQ(unknown.file.target, unplaced_target(0));
  EXPECT_EQ(target_run(folder.place(0).file, 0).target, 4);
}

TEST(Placement, targets_of_two_file_systems_are_apart) {
  std::set<Target> seen;
  for (const int mount : {0, 1, 2}) {
    for (const Target target : {metadata_target, 0, 1, 2000, 65534}) {
      EXPECT_TRUE(seen.insert(placed_target(mount, target)).second) << mount << " " << target;
    }
  }
  EXPECT_EQ(placed_target(0, 7), 7);
  EXPECT_EQ(placed_target(0, metadata_target), metadata_target);
  EXPECT_FALSE(seen.contains(unplaced_target(0)));
}

TEST(Placement, a_released_file_is_asked_anew_once_it_is_forgotten) {
  PlacedFolder folder({2 * mebi});
  folder.lustre->lay("a.bin", {3, 5});
  folder.lustre->release("a.bin");
  EXPECT_TRUE(folder.place(0).released);
  EXPECT_EQ(target_run(folder.place(0).file, 0).target, unplaced_target(0));
  folder.lustre->release("a.bin", 0x9);  // it is back
  EXPECT_TRUE(folder.place(0).released) << "nobody has said so";
  folder.placement.forget(0);
  EXPECT_FALSE(folder.place(0).released);
  EXPECT_EQ(target_run(folder.place(0).file, 0).target, 3);
  EXPECT_EQ(folder.placement.notes().released, 1u);
}

TEST(Placement, notes_name_a_file_of_each_target_that_has_whole_ones) {
  PlacedFolder folder({mebi, mebi, 2 * mebi});
  folder.lustre->lay("a.bin", {3});
  folder.lustre->lay("b.bin", {3});
  folder.lustre->lay("c.bin", {4, 6});
  for (const std::uint32_t file : {0, 1, 2}) {
    folder.place(file);
  }
  const PlacementNotes notes = folder.placement.notes();
  EXPECT_THAT(notes.targets, ElementsAre(3, 4, 6));
  ASSERT_EQ(notes.lone_files.size(), 1u);
  EXPECT_THAT(notes.lone_files.at(3), HasSubstr("a.bin"));
}

}  // namespace
}  // namespace sprat::io
