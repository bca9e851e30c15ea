// Which files paths name: folders, patterns, links, and what is no file.
#include "io/dataset/file_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/unit/io/dataset/written.hpp"

namespace sprat::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> tars_of(const std::vector<std::string>& paths) {
  return files_of(format_named("webdataset"), find_files(paths));
}

TEST(FileList, a_folder_has_the_files_with_the_endings_of_the_format) {
  const TemporaryFolder folder;
  for (const char* name : {"b.tar", "a.tar", "a.txt", ".hidden.tar", "c.TAR", "folder.tar/d.tar"}) {
    write(folder / name, "");
  }
  EXPECT_THAT(tars_of({folder.path()}),
              ElementsAre(folder / "a.tar", folder / "b.tar", folder / "c.TAR"));
}

TEST(FileList, patterns_and_paths_take_files_of_any_ending_each_once) {
  const TemporaryFolder folder;
  for (const char* name : {"x1/a.tar", "x2/b.tar", "x2/c.part", "y/d.tar"}) {
    write(folder / name, "");
  }
  EXPECT_THAT(tars_of({folder / "x?/*", folder / "x2/b.tar", folder / "x1/../x1/./a.tar"}),
              ElementsAre(folder / "x1/a.tar", folder / "x2/b.tar", folder / "x2/c.part"));
}

TEST(FileList, a_name_may_have_letters_of_patterns) {
  const TemporaryFolder folder;
  write(folder / "a*[1].tar", "");
  write(folder / "ab.tar", "");
  EXPECT_THAT(tars_of({folder / "a*[1].tar"}), ElementsAre(folder / "a*[1].tar"));
}

TEST(FileList, names_may_be_in_no_encoding) {
  const TemporaryFolder folder;
  write(folder / "\xff\xfe.tar", "");
  EXPECT_THAT(tars_of({folder.path()}), ElementsAre(folder / "\xff\xfe.tar"));
  EXPECT_THAT(tars_of({folder / "*.tar"}), ElementsAre(folder / "\xff\xfe.tar"));
}

TEST(FileList, links_are_files) {
  const TemporaryFolder folder;
  write(folder / "elsewhere/a", "");
  std::filesystem::create_directory(folder / "data");
  std::filesystem::create_symlink(folder / "elsewhere/a", folder / "data/a.tar");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "data/b.tar");
  EXPECT_THAT(tars_of({folder / "data"}), ElementsAre(folder / "data/a.tar"));
}

TEST(FileList, two_dots_behind_a_link_are_up_from_where_it_leads) {
  const TemporaryFolder folder;
  write(folder / "elsewhere/a.tar", "right");
  write(folder / "data/a.tar", "of another folder");
  std::filesystem::create_directories(folder / "elsewhere/part");
  std::filesystem::create_symlink(folder / "elsewhere/part", folder / "data/link");
  std::filesystem::create_symlink(folder / "data/a.tar", folder / "elsewhere/b.tar");
  // As the system itself opens it.
  EXPECT_THAT(tars_of({folder / "data/link/../a.tar"}), ElementsAre(folder / "elsewhere/a.tar"));
  EXPECT_THAT(tars_of({folder / "data/link/.."}),
              ElementsAre(folder / "elsewhere/a.tar", folder / "elsewhere/b.tar"));
  // A link that is a file keeps its name.
  EXPECT_THAT(tars_of({folder / "data/../elsewhere/b.tar"}),
              ElementsAre(folder / "elsewhere/b.tar"));
  EXPECT_EQ(folder_of(folder / "data/link/../*.tar"), folder / "elsewhere");
}

TEST(FileList, links_that_lead_in_a_circle_are_named) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder / "b.tar", folder / "a.tar");
  std::filesystem::create_symlink(folder / "a.tar", folder / "b.tar");
  EXPECT_THAT(complaint_about([&] { find_files({folder / "a.tar"}); }),
              HasSubstr("a.tar: Too many levels of symbolic links"));
}

TEST(FileList, what_is_not_there_is_named) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint_about([&] { find_files({folder / "none"}); }), HasSubstr("none: No such"));
  EXPECT_THAT(complaint_about([&] { find_files({folder / "*.tar"}); }), HasSubstr("*.tar"));
  EXPECT_THAT(complaint_about([&] { tars_of({folder.path()}); }), HasSubstr(".tar or .tar.gz"));
  EXPECT_THAT(complaint_about([&] { typical_file(find_files({folder.path()})); }),
              HasSubstr("has an ending that a format knows"));
  EXPECT_THAT(complaint_about([&] { find_files({}); }), HasSubstr("needs a file"));
}

TEST(FileList, folders_of_several_formats_want_one_named) {
  const TemporaryFolder folder;
  write(folder / "a.tar", "");
  write(folder / "b.txt", "");
  write(folder / "c.txt", "");
  write(folder / "README", "");
  EXPECT_THAT(complaint_about([&] { typical_file(find_files({folder.path()})); }),
              HasSubstr("2 of text, 1 of webdataset"));
}

TEST(FileList, the_folder_of_a_pattern_is_before_its_first_star) {
  const TemporaryFolder folder;
  write(folder / "a/b.tar", "");
  EXPECT_EQ(folder_of(folder / "a/b.tar"), folder / "a");
  EXPECT_EQ(folder_of(folder / "a"), folder / "a");
  EXPECT_EQ(folder_of(folder / "a/"), folder / "a");
  EXPECT_EQ(folder_of(folder / "a/*.tar"), folder / "a");
  EXPECT_EQ(folder_of(folder / "x?/*.tar"), folder.path());
  EXPECT_EQ(folder_of("/*"), "/");
}

}  // namespace
}  // namespace sprat::io
