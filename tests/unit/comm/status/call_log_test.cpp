// A log that is appended to without waiting.
#include "comm/status/call_log.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "sprat/error.hpp"

namespace sprat::comm::status {
namespace {

class LogFolder {
 public:
  LogFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sprat-log-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~LogFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(CallLog, writes_all_in_order) {
  const LogFolder folder;
  const std::string deeper = folder.path() + "/a/b";
  std::string expected;
  {
    CallLog log(deeper, "one");
    // Far more than the ring holds, in pieces whose ends fall anywhere.
    const std::string head(37, 'h');
    for (int i = 0; i < 3000; ++i) {
      const std::string rest(static_cast<std::size_t>(i) * 7 % 10'000,
                             static_cast<char>('a' + i % 26));
      while (!log.append(bytes(head), bytes(rest))) {
        std::this_thread::yield();
      }
      expected += head + rest;
    }
  }
  EXPECT_GT(expected.size(), std::size_t{12} << 20);
  EXPECT_EQ(content(deeper + "/one.digests"), expected);
}

TEST(CallLog, what_finds_no_room_is_refused_as_a_whole) {
  const LogFolder folder;
  const std::string most(std::size_t{4} << 20, 'x');
  {
    CallLog log(folder.path(), "one");
    EXPECT_FALSE(log.append(bytes(most), bytes("y")));
    EXPECT_TRUE(log.append(bytes("a"), bytes("b")));
  }
  EXPECT_EQ(content(folder.path() + "/one.digests"), "ab");
}

TEST(CallLog, is_on_disk_soon) {
  const LogFolder folder;
  CallLog log(folder.path(), "one");
  ASSERT_TRUE(log.append(bytes("first"), {}));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (content(folder.path() + "/one.digests") != "first") {
    ASSERT_LT(std::chrono::steady_clock::now(), patience);
    std::this_thread::yield();
  }
}

TEST(CallLog, needs_a_folder) {
  const LogFolder folder;
  { std::ofstream(folder.path() + "/file") << "no folder"; }
  EXPECT_THROW(CallLog(folder.path() + "/file/inside", "one"), Error);
}

// A disk that refuses, here by the limit on a file's size: the job goes on, and the ring with it.
TEST(CallLog, goes_on_when_the_disk_refuses) {
  const LogFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    setrlimit(RLIMIT_FSIZE, &limit);
    bool taken = true;
    {
      CallLog log(folder.path(), "one");
      const std::string record(1 << 10, 'r');
      for (int i = 0; i < 1 << 14; ++i) {
        for (int attempt = 0; !log.append(bytes(record), {}); ++attempt) {
          taken = taken && attempt < 10'000'000;
          std::this_thread::yield();
        }
      }
    }
    _exit(taken ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::filesystem::file_size(folder.path() + "/one.digests"), std::size_t{1} << 16);
}

}  // namespace
}  // namespace sprat::comm::status
