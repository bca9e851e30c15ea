// Files written with checksums and read against them; steps in their order; what cannot be written.
#include "io/durable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "io/checked_file.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint32_t value = 1;
  for (std::byte& byte : bytes) {
    value = value * 1664525 + 1013904223;
    byte = static_cast<std::byte>(value >> 24);
  }
  return bytes;
}

FileRecord write_in_pieces(const std::string& path, std::span<const std::byte> bytes,
                           std::size_t piece) {
  DurableFile file(path, {});
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    file.write(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  return file.finish();
}

template <class Body>
std::string complaint_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Durable, checksums_do_not_depend_on_the_pieces) {
  const TemporaryFolder folder;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, checked_block_bytes,
                                  checked_block_bytes + 1, 2 * checked_block_bytes + 12345}) {
    const auto content = some_bytes(bytes);
    const FileRecord whole = write_in_pieces(folder / "a", content, bytes + 1);
    const FileRecord pieces = write_in_pieces(folder / "b", content, 700'001);
    EXPECT_EQ(whole, pieces) << bytes;
    EXPECT_EQ(whole.bytes, bytes);
    EXPECT_EQ(whole.blocks.size(), (bytes + checked_block_bytes - 1) / checked_block_bytes);
    remove_all(folder / "a", {});
    remove_all(folder / "b", {});
  }
}

TEST(Durable, any_range_comes_back) {
  const TemporaryFolder folder;
  const auto content = some_bytes(3 * checked_block_bytes + 777);
  const FileRecord record = write_in_pieces(folder / "f", content, content.size());
  CheckedFile file(folder / "f", record);
  struct Range {
    std::size_t offset, count;
  };
  const Range ranges[] = {{0, 10},
                          {checked_block_bytes - 1, 2},
                          {5, 2 * checked_block_bytes},
                          {0, content.size()},
                          {content.size() - 1, 1},
                          {17, 0}};
  for (const auto [offset, count] : ranges) {
    std::vector<std::byte> got(count);
    file.read(offset, got);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), content.begin() + static_cast<long>(offset)))
        << offset << ' ' << count;
  }
  std::vector<std::byte> beyond(2);
  EXPECT_THROW(file.read(content.size() - 1, beyond), Error);
}

TEST(Durable, a_flipped_bit_is_found_where_it_is_and_only_there) {
  const TemporaryFolder folder;
  const auto content = some_bytes(2 * checked_block_bytes + 100);
  const FileRecord record = write_in_pieces(folder / "f", content, content.size());
  for (const std::size_t at : {std::size_t{0}, checked_block_bytes + 5, content.size() - 1}) {
    auto damaged = content;
    damaged[at] ^= std::byte{0x10};
    std::ofstream(folder / "f", std::ios::binary)
        .write(reinterpret_cast<const char*>(damaged.data()), static_cast<long>(damaged.size()));
    CheckedFile file(folder / "f", record);
    const std::size_t bad = at / checked_block_bytes;
    EXPECT_THAT(file.damaged_blocks(), ElementsAre(bad));
    for (std::size_t block = 0; block < 3; ++block) {
      std::vector<std::byte> one(1);
      const auto read = [&] { file.read(block * checked_block_bytes, one); };
      if (block == bad) {
        EXPECT_THAT(complaint_of(read), AllOf(HasSubstr(folder / "f"), HasSubstr("damaged"),
                                              HasSubstr("block " + std::to_string(block))));
      } else {
        EXPECT_NO_THROW(read()) << at;
      }
    }
  }
}

TEST(Durable, another_length_is_refused) {
  const TemporaryFolder folder;
  const FileRecord record = write_in_pieces(folder / "f", some_bytes(1000), 1000);
  fs::resize_file(folder / "f", 999);
  EXPECT_THAT(complaint_of([&] { CheckedFile(folder / "f", record); }),
              AllOf(HasSubstr("999"), HasSubstr("1000"), HasSubstr("cut short")));
  fs::resize_file(folder / "f", 1001);
  EXPECT_THAT(complaint_of([&] { CheckedFile(folder / "f", record); }), HasSubstr("too long"));
  EXPECT_THAT(complaint_of([&] { CheckedFile(folder / "absent", record); }),
              AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(complaint_of([&] { CheckedFile(folder.path(), record); }),
              HasSubstr("Is a directory"));
}

TEST(Durable, an_unfinished_file_goes) {
  const TemporaryFolder folder;
  {
    DurableFile file(folder / "f", {});
    file.write(some_bytes(10));
  }
  EXPECT_FALSE(fs::exists(folder / "f"));
}

TEST(Durable, steps_are_told_before_they_happen) {
  const TemporaryFolder folder;
  std::vector<std::string> steps;
  const StepHook hook = [&](std::string_view step, const std::string& path) {
    steps.push_back(std::string(step) + " " + fs::path(path).filename().string());
    if (step == "create") {
      EXPECT_FALSE(fs::exists(path));
    }
  };
  make_folder(folder / "new", hook);
  write_file(folder / "new/f", "text", hook);
  sync_folder(folder / "new", hook);
  rename_over(folder / "new", folder / "name", hook);
  point_link(folder / "latest", "name", folder / "spare", hook);
  remove_all(folder / "name", hook);
  EXPECT_THAT(steps,
              ElementsAre("make folder new", "create f", "write f", "fsync f", "fsync folder new",
                          "rename name", "link spare", "rename link latest", "remove name"));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "name");
}

TEST(Durable, a_length_keeps_what_is_there_and_puts_zeros_behind_it) {
  const TemporaryFolder folder;
  write_file(folder / "f", "text", {});
  set_length(folder / "f", 6, {});
  EXPECT_EQ(read_whole(folder / "f", 10), std::string("text\0\0", 6));
  set_length(folder / "f", 2, {});
  EXPECT_EQ(read_whole(folder / "f", 10), "te");
  EXPECT_THAT(complaint_of([&] { set_length(folder / "no", 1, {}); }), HasSubstr("No such file"));
}

TEST(Durable, a_folder_that_is_there_is_exchanged) {
  const TemporaryFolder folder;
  for (const std::string name : {"old", "new"}) {
    make_folder(folder / name, {});
    write_file(folder / (name + "/is"), name, {});
  }
  rename_over(folder / "new", folder / "old", {});
  EXPECT_EQ(read_whole(folder / "old/is", 10), "new");
  EXPECT_EQ(read_whole(folder / "new/is", 10), "old");
  point_link(folder / "latest", "old", folder / "spare", {});
  point_link(folder / "latest", "new", folder / "spare", {});
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "new");
}

TEST(Durable, where_names_cannot_be_exchanged_they_take_turns_and_come_back) {
  for (const std::string fails :
       {"", "rename aside", "rename into its place", "rename what was replaced"}) {
    const TemporaryFolder folder;
    for (const std::string name : {"old", "new"}) {
      make_folder(folder / name, {});
      write_file(folder / (name + "/is"), name, {});
    }
    const StepHook hook = [&](std::string_view step, const std::string& path) {
      if (step == fails) {
        throw Error(ErrorCode::unavailable, path);
      }
    };
    const std::string complaint =
        complaint_of([&] { rename_by_turns(folder / "new", folder / "old", hook); });
    EXPECT_EQ(complaint == "nothing was refused", fails.empty()) << complaint;
    EXPECT_EQ(read_whole(folder / "old/is", 10), fails.empty() ? "new" : "old") << fails;
    EXPECT_EQ(read_whole(folder / "new/is", 10), fails.empty() ? "old" : "new") << fails;
  }
}

TEST(Durable, what_cannot_be_made_is_said_with_path_and_remedy) {
  const TemporaryFolder folder;
  write_file(folder / "file", "text", {});
  EXPECT_THAT(complaint_of([&] { DurableFile(folder / "no/f", {}); }),
              AllOf(HasSubstr(folder / "no/f"), HasSubstr("No such file"),
                    HasSubstr("Every rank of a job needs it")));
  EXPECT_THAT(complaint_of([&] { DurableFile(folder / "file", {}); }), HasSubstr("File exists"));
  EXPECT_THAT(complaint_of([&] { make_folder(folder / "file/below", {}); }),
              HasSubstr("Not a directory"));
  EXPECT_THAT(complaint_of([&] { sync_folder(folder / "no", {}); }), HasSubstr("No such file"));
  EXPECT_THAT(complaint_of([&] { rename_over(folder / "no", folder / "x", {}); }),
              HasSubstr("No such file"));
  EXPECT_THAT(complaint_of([&] { point_link(folder / "no/l", "t", folder / "no/s", {}); }),
              HasSubstr("No such file"));
  EXPECT_THAT(complaint_of([&] { read_whole(folder / "file", 3); }), HasSubstr("at most 3"));
}

/// In a process of its own, since the limit stays.
TEST(Durable, a_file_that_may_not_grow_leaves_nothing) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string complaint =
        complaint_of([&] { write_in_pieces(folder / "f", some_bytes(3000), 700); });
    const bool good = complaint.find("File too large; raise the limit") != std::string::npos &&
                      !fs::exists(folder / "f");
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sprat::io
