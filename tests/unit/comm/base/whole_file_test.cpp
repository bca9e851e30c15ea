// Files are whole or as they were, whatever the disk does and whatever a name stands for.
#include "comm/base/whole_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "sprat/error.hpp"

namespace sprat {
namespace {

namespace fs = std::filesystem;

class WholeFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "sprat-whole-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ / name; }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  fs::path folder_;
};

std::string complaint(const std::string& path, std::string_view content) {
  try {
    write_whole_file(path, content);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Files of this process end there, as a full disk ends them, while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*signal_)(int);
};

TEST_F(WholeFiles, are_replaced_in_one_step_or_stay_as_they_were) {
  write_whole_file(path("f"), "old");
  write_whole_file(path("f"), "new");
  EXPECT_EQ(content(path("f")), "new");
  {
    const FileLimit limit(4096);
    EXPECT_NE(complaint(path("f"), std::string(10'000, 'x')).find(path("f") + ": "),
              std::string::npos);
    EXPECT_NE(complaint(path("g"), std::string(10'000, 'x')), "");
  }
  EXPECT_EQ(content(path("f")), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFiles, are_not_kept_from_being_written_by_what_an_ended_writer_left) {
  for (const char* number : {"-0.part", "-1.part"}) {
    std::ofstream(path("f") + "." + std::to_string(getpid()) + number) << "half";
  }
  write_whole_file(path("f"), "whole");
  EXPECT_EQ(content(path("f")), "whole");
  EXPECT_EQ(files(), 3);
}

// As root a rename takes the place of a device, and then nothing on the machine has /dev/null.
TEST_F(WholeFiles, do_not_take_the_place_of_pipes_devices_and_links) {
  ASSERT_EQ(symlink("/dev/null", path("null").c_str()), 0);
  write_whole_file(path("null"), "nobody reads it");
  EXPECT_TRUE(fs::is_symlink(path("null")));
  ASSERT_EQ(symlink("target", path("link").c_str()), 0);
  write_whole_file(path("target"), "old and long");
  write_whole_file(path("link"), "new");
  EXPECT_EQ(content(path("target")), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_NE(complaint("/dev/full", "x").find("No space left"), std::string::npos);
  struct stat there {};
  ASSERT_EQ(lstat("/dev/full", &there), 0);
  EXPECT_TRUE(S_ISCHR(there.st_mode));
}

TEST_F(WholeFiles, that_have_no_folder_say_so) {
  EXPECT_NE(complaint(path("no/f"), "x").find("is its folder there?"), std::string::npos);
  EXPECT_NE(complaint(folder_.string(), "x").find(folder_.string() + ": "), std::string::npos);
}

TEST_F(WholeFiles, are_read_as_they_were_written) {
  const std::string content(300'000, 'x');
  write_whole_file(path("long"), content);
  EXPECT_EQ(read_whole_file(path("long")), content);
  write_whole_file(path("none"), "");
  EXPECT_EQ(read_whole_file(path("none")), "");
}

TEST_F(WholeFiles, that_are_none_are_named) {
  const auto said = [](const std::string& path) {
    try {
      read_whole_file(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto cannot_read = [](const std::string& path) { return "cannot read \"" + path + "\": "; };
  EXPECT_EQ(said(folder_), cannot_read(folder_) + "it is a folder; name a file");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(said(path("pipe")),
            cannot_read(path("pipe")) + "it is a pipe that nobody writes into; name a file");
  EXPECT_EQ(said("/dev/zero"), cannot_read("/dev/zero") +
                                   "it is a pipe or a device, no file; write what it gives into a "
                                   "file, and name that");
  write_whole_file(path("holes"), "");
  fs::resize_file(path("holes"), std::uintmax_t{1} << 40);
  EXPECT_TRUE(said(path("holes")).starts_with(cannot_read(path("holes")) + "it has 1099511627776 "))
      << said(path("holes"));
  EXPECT_EQ(read_whole_file("/proc/self/comm").empty(), false)
      << "a file that says it has no bytes";
  EXPECT_EQ(said(path("no")), "cannot open \"" + path("no") + "\": No such file or directory");
}

TEST_F(WholeFiles, come_through_pipes_whose_writers_take_their_time) {
  const std::string content(300'000, 'x');
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  std::thread writer([&] {
    for (std::size_t at = 0; at < content.size(); at += 100'000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // as a program that computes
      EXPECT_EQ(write(ends[1], content.data() + at, 100'000), 100'000);
    }
    close(ends[1]);
  });
  EXPECT_EQ(read_whole_file("/dev/fd/" + std::to_string(ends[0])), content);
  writer.join();
  close(ends[0]);
}

TEST_F(WholeFiles, of_settings_are_named_with_them_and_bounded) {
  write_whole_file(path("f"), "some");
  EXPECT_EQ(read_setting_file("SPRAT_X", path("f")), "some");
  fs::resize_file(path("f"), (std::uintmax_t{64} << 20) + 1);
  try {
    read_setting_file("SPRAT_X", path("f"));
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("cannot read SPRAT_X=\"" + path("f") + "\": it has "),
              0u)
        << error.what();
  }
}

}  // namespace
}  // namespace sprat
