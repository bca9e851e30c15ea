// What a loader finds out before it starts, and says afterwards.
#include "io/loader/lustre/lustre_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/io/loader/lustre/scripted_lustre.hpp"

namespace sprat::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LustreFiles, open_the_first_file_of_each_source_alone) {
  LustreFolder folder({100, 100, 100});
  const auto lustre = find_lustre(folder.lustre, folder.files, std::nullopt);
  ASSERT_NE(lustre, nullptr);
  EXPECT_EQ(folder.lustre->opens(), (std::map<std::string, int>{{"a.bin", 1}}));
  EXPECT_TRUE(lustre->first_on_lustre);
  EXPECT_FALSE(lustre->first_released);
  EXPECT_THAT(lustre->sentence, HasSubstr("Lustre (FSx assumed: no"));
  EXPECT_EQ(lustre->target_bytes, UINT64_C(8) << 20) << "as clients are set that tell nothing";
  EXPECT_FALSE(lustre->targets);
}

TEST(LustreFiles, know_that_the_first_file_is_released) {
  LustreFolder folder({100});
  folder.lustre->lay("a.bin", {1});
  folder.lustre->release("a.bin");
  EXPECT_TRUE(find_lustre(folder.lustre, folder.files, std::nullopt)->first_released);
}

TEST(LustreFiles, say_what_the_user_declares) {
  LustreFolder folder({100});
  const auto lustre = find_lustre(folder.lustre, folder.files, parse_fsx("PERSISTENT_2:250:12000"));
  EXPECT_THAT(lustre->sentence, HasSubstr("FSx assumed: by option"));
}

TEST(LustreFiles, describe_targets_and_what_is_not_known) {
  LustreFolder folder({1 << 20, 1 << 20});
  folder.lustre->lay("a.bin", {3});
  const auto lustre = find_lustre(folder.lustre, folder.files, std::nullopt);
  OpenFiles open([&](std::uint32_t file) { return folder.files->known(file); }, {});
  const auto opens = [&](std::uint32_t file) { return open.open(file); };
  lustre->placement->place(0, 1, opens);
  EXPECT_THAT(lustre->describe(), HasSubstr("1 targets so far, of 1 files"));
  EXPECT_THAT(lustre->describe(), Not(HasSubstr("not known")));
  lustre->placement->place(1, 1, opens);
  EXPECT_THAT(lustre->describe(), HasSubstr("b.bin (nothing was ever written to it)"));
  EXPECT_THAT(lustre->facts({}).lone_files.at(3), HasSubstr("a.bin"));
}

TEST(LustreFiles, are_none_on_other_file_systems) {
  const LustreFolder folder({100});
  const std::shared_ptr<const FsProbe> kernel = system_probe("");
  EXPECT_EQ(find_lustre(kernel, folder.files, std::nullopt), nullptr);
}

}  // namespace
}  // namespace sprat::io
