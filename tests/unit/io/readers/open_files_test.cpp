// Descriptors: few, of the files that were indexed, and never closed under a read.
#include "io/readers/open_files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "io/readers/read_memory.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

class OpenFilesTest : public testing::Test {
 protected:
  OpenFilesTest() {
    for (std::uint32_t file = 0; file < 10; ++file) {
      std::ofstream(path(file)) << "file " << file;
      struct stat status {};
      ::stat(path(file).c_str(), &status);
      stamps_.push_back(
          {.bytes = static_cast<std::uint64_t>(status.st_size),
           .modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
    }
  }
  std::string path(std::uint32_t file) const { return folder_ / ("f" + std::to_string(file)); }
  OpenFiles files(const OpenFilesOptions& options) const {
    return OpenFiles(
        [this](std::uint32_t file) {
          return KnownFile{path(file), stamps_[file]};
        },
        options);
  }
  static std::string content(const OpenFile& file) {
    char text[64];
    const ssize_t got = ::pread(file.descriptor(), text, sizeof text, 0);
    return {text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }
  static std::string refusal(OpenFiles& files, std::uint32_t file) {
    try {
      files.open(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  std::vector<FileStamp> stamps_;
};

TEST_F(OpenFilesTest, keeps_the_last_used_open) {
  OpenFiles files = this->files({.most = 3});
  for (const std::uint32_t file : {0u, 1u, 2u, 0u, 3u}) {
    EXPECT_EQ(content(*files.open(file).file), "file " + std::to_string(file));
    EXPECT_LE(files.open_now(), 3u);
  }
  EXPECT_FALSE(files.open(0).fresh);
  EXPECT_TRUE(files.open(1).fresh) << "it was the one that nobody had used for longest";
}

TEST_F(OpenFilesTest, leaves_a_descriptor_to_who_reads_by_it) {
  OpenFiles files = this->files({.most = 1});
  const auto reading = files.open(0).file;
  files.open(1);
  EXPECT_EQ(content(*reading), "file 0");
  const auto again = files.open(1).file;
  files.drop(1);
  EXPECT_NE(files.open(1).file->descriptor(), again->descriptor());
  EXPECT_EQ(content(*again), "file 1");
}

TEST_F(OpenFilesTest, refuses_a_file_that_is_another_one) {
  OpenFiles files = this->files({});
  std::ofstream(path(0), std::ios::app) << "!";
  EXPECT_THAT(refusal(files, 0), testing::AllOf(HasSubstr(path(0) + " has 7 bytes of 20"),
                                                HasSubstr("but when it was indexed had 6 of 20"),
                                                HasSubstr("index the dataset anew")));
  const auto now = std::filesystem::last_write_time(path(1));
  std::filesystem::last_write_time(path(1), now - std::chrono::hours(400'000));
  EXPECT_THAT(refusal(files, 1), HasSubstr(" has 6 bytes of 19")) << "a time before 1990";
  std::filesystem::remove(path(2));
  ASSERT_EQ(::mkfifo(path(2).c_str(), 0600), 0);
  EXPECT_THAT(refusal(files, 2), HasSubstr("is no regular file any more"));
  std::filesystem::remove(path(3));
  EXPECT_EQ(files.open(3).error, ENOENT);
  EXPECT_EQ(files.open_now(), 0u);
}

TEST_F(OpenFilesTest, notices_a_file_that_is_written_to_while_it_is_open) {
  OpenFiles files = this->files({.look_again = std::chrono::seconds(0)});
  const auto opened = files.open(0).file;
  const auto write_at_its_place = [&](std::uint32_t file) {
    std::fstream(path(file), std::ios::in | std::ios::out) << "other!";
    const auto now = std::filesystem::last_write_time(path(file));
    std::filesystem::last_write_time(path(file), now + std::chrono::seconds(1));
  };
  EXPECT_TRUE(files.is_unchanged(0, *opened));
  write_at_its_place(0);
  EXPECT_THAT(refusal(files, 0), HasSubstr("but when it was indexed had 6 of 20"));
  EXPECT_FALSE(files.is_unchanged(0, *opened));
  // Servers are not asked each time.
  OpenFiles trusting = this->files({.look_again = std::chrono::hours(1)});
  trusting.open(1);
  write_at_its_place(1);
  EXPECT_EQ(refusal(trusting, 1), "");
  // A file that takes another's name leaves that one as it was.
  const auto kept = files.open(2).file;
  std::filesystem::rename(path(3), path(2));
  EXPECT_EQ(refusal(files, 2), "");
  EXPECT_EQ(content(*kept), "file 2");
}

/// As long as it lives, this process may have so many descriptors.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{.rlim_cur = most, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(OpenFilesTest, makes_room_where_the_process_has_no_descriptor_left) {
  OpenFiles files = this->files({.most = 8});
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  std::optional<DescriptorLimit> limit(static_cast<rlim_t>(next) + 4);
  for (std::uint32_t file = 0; file < 10; ++file) {
    const OpenFiles::Opened opened = files.open(file);
    ASSERT_EQ(opened.error, 0) << file;
    EXPECT_EQ(content(*opened.file), "file " + std::to_string(file));
  }
  limit.emplace(0);
  OpenFiles others = this->files({});
  EXPECT_EQ(others.open(0).error, EMFILE) << "with none of its own to close it says so";
}

TEST(ReadMemory, gives_whole_pages_up_to_its_limit_and_takes_them_back) {
  const auto memory = plain_read_memory(10 * 4096);
  const auto first = memory->take(1), second = memory->take(8 * 4096 + 1);
  EXPECT_EQ(first.size(), 4096u);
  EXPECT_EQ(second.size(), 9 * 4096u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.data()) % 4096, 0u);
  first.back() = second.back() = std::byte{1};
  EXPECT_TRUE(memory->take(1).empty());
  memory->give(first);
  EXPECT_EQ(memory->take(4096).data(), first.data()) << "used memory is used again";
}

TEST(ReadMemory, has_room_between_slots_of_all_sizes) {
  const auto memory = plain_read_memory(64 * 4096);
  std::vector<std::span<std::byte>> slots;
  for (int page = 0; page < 64; ++page) {
    slots.push_back(memory->take(4096));
  }
  for (std::size_t slot = 0; slot < slots.size(); slot += 2) {
    memory->give(slots[slot]);
  }
  EXPECT_EQ(memory->take(32 * 4096).size(), 32 * 4096u) << "half is free, in single pages";
}

}  // namespace
}  // namespace sprat::io
