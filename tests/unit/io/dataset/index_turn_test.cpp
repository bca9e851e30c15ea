// One process indexes while others wait: whoever dies, is stopped, or has no locks.
#include "io/dataset/index_turn.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <thread>

#include "io/checked_file.hpp"
#include "io/dataset/index_place.hpp"
#include "io/dataset/indexer.hpp"
#include "tests/unit/io/dataset/written.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

/// A child that has the turn, and does nothing more.
class Holder {
 public:
  Holder(const std::string& index, const TurnOptions& options) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const IndexTurn turn(
          index, [] { return false; }, options);
      const char held = turn.is_held() ? 1 : 0;
      if (::write(ends[1], &held, 1) == 1) {
        pause();
      }
      _exit(0);
    }
    char held = 0;
    EXPECT_EQ(::read(ends[0], &held, 1), 1);
    EXPECT_EQ(held, 1);
    close(ends[0]);
    close(ends[1]);
  }
  ~Holder() { end(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void stop() const { kill(pid_, SIGSTOP); }
  void end() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = 0;
    }
  }

 private:
  pid_t pid_ = 0;
};

class IndexTurns : public testing::Test {
 protected:
  static TurnOptions quick(std::chrono::milliseconds patience) {
    return {.look = 5ms, .longest_look = 5ms, .line = 10ms, .tell = 10s, .patience = patience};
  }
  bool has_lock_file() const { return std::filesystem::exists(index_ + ".lock"); }

  const TemporaryFolder folder_;
  const std::string index_ = folder_ / "index";
};

TEST_F(IndexTurns, are_taken_one_after_the_other_and_leave_no_file) {
  const auto never = [] { return false; };
  {
    const IndexTurn turn(index_, never);
    EXPECT_TRUE(turn.is_held());
    EXPECT_TRUE(has_lock_file());
    const IndexTurn other(
        index_, [] { return true; }, quick(1min));
    EXPECT_FALSE(other.is_held()) << "what it would do is done";
    EXPECT_TRUE(has_lock_file());
  }
  EXPECT_FALSE(has_lock_file());
  EXPECT_TRUE(IndexTurn(index_, never).is_held());
  EXPECT_FALSE(IndexTurn("", never).is_held());
}

TEST_F(IndexTurns, of_a_killed_process_are_the_next_ones) {
  Holder holder(index_, quick(1min));
  int looks = 0;
  const auto kill_it = [&] {
    if (++looks == 3) {
      holder.end();
    }
    return false;
  };
  const IndexTurn turn(index_, kill_it, quick(1min));
  EXPECT_TRUE(turn.is_held());
  EXPECT_GE(looks, 3);
}

TEST_F(IndexTurns, of_a_stopped_process_are_not_waited_for) {
  Holder holder(index_, quick(1min));
  holder.stop();
  const auto begin = std::chrono::steady_clock::now();
  const IndexTurn turn(
      index_, [] { return false; }, quick(200ms));
  EXPECT_FALSE(turn.is_held());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 200ms);
  EXPECT_TRUE(has_lock_file()) << "it is the other's";
}

TEST_F(IndexTurns, of_a_slow_process_are_waited_for_longer_than_there_is_patience) {
  const Holder holder(index_, quick(1min));
  const auto begin = std::chrono::steady_clock::now();
  const auto late = [&] { return std::chrono::steady_clock::now() - begin > 3s; };
  const IndexTurn turn(index_, late, quick(2s));
  EXPECT_FALSE(turn.is_held());
  EXPECT_TRUE(late()) << "gave up on a process that writes a line every 10 ms";
}

TEST_F(IndexTurns, are_nobodys_where_something_else_lies_in_the_files_place) {
  const std::string mine = folder_ / "mine.txt", lock = index_ + ".lock";
  write(mine, "what I wrote");
  std::filesystem::create_symlink(mine, lock);
  const auto is_held = [&] {
    return IndexTurn(
               index_, [] { return false; }, quick(1min))
        .is_held();
  };
  EXPECT_FALSE(is_held());
  EXPECT_EQ(read_whole(mine, 100), "what I wrote");
  std::filesystem::remove(lock);
  ASSERT_EQ(mkfifo(lock.c_str(), 0600), 0);
  EXPECT_FALSE(is_held());
}

TEST_F(IndexTurns, are_nobodys_where_files_cannot_be_locked) {
  TurnOptions options = quick(1min);
  options.lock = [](int, int) {
    errno = ENOSYS;
    return -1;
  };
  EXPECT_FALSE(IndexTurn(
                   index_, [] { return false; }, options)
                   .is_held());
  EXPECT_FALSE(has_lock_file());
  EXPECT_FALSE(IndexTurn("/nowhere/index", [] { return false; }).is_held());
}

/// Files that a child reads to open the dataset.
int index_counted(const DatasetOptions& options) {
  const pid_t child = fork();
  if (child == 0) {
    int indexed = 255;
    try {
      indexed = static_cast<int>(index_dataset(options, Trust::names, {}).indexed);
    } catch (...) {  // NOLINT: told by its status
    }
    _exit(indexed);
  }
  return child;
}

TEST_F(IndexTurns, let_processes_that_open_a_dataset_at_once_read_each_file_once) {
  constexpr int files = 20;
  for (int file = 0; file < files; ++file) {
    write(folder_ / ("shard-" + std::to_string(100 + file) + ".tar"), tar_of(file + 1, 10));
  }
  const DatasetOptions options{.paths = {folder_.path()}, .threads = 2};
  for (int round = 0; round < 10; ++round) {
    std::vector<int> children;
    for (int process = 0; process < 4; ++process) {
      children.push_back(index_counted(options));
    }
    int read = 0;
    for (const int child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      read += WEXITSTATUS(status);
    }
    EXPECT_EQ(read, files) << "by all processes together";
    std::filesystem::remove(index_places(options).paths.at(0));
  }
}

TEST_F(IndexTurns, of_a_killed_process_go_on_by_what_it_has_done) {
  for (int file = 0; file < 10; ++file) {
    write(folder_ / ("shard-" + std::to_string(file) + ".tar"), tar_of(file + 1, 10));
  }
  const DatasetOptions options{.paths = {folder_.path()}, .threads = 1};
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    // The hook hears of a file once it is in the journal.
    const auto stay = [&](const IndexProgress& progress) {
      if (progress.files == 4 && ::write(ends[1], "x", 1) == 1) {
        pause();
      }
    };
    index_dataset(options, Trust::names, stay);
    _exit(0);
  }
  char begun = 0;
  ASSERT_EQ(::read(ends[0], &begun, 1), 1);
  std::uint64_t indexed = 0;
  std::thread other([&] { indexed = index_dataset(options, Trust::names, {}).indexed; });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  other.join();
  EXPECT_EQ(indexed, 6u);
  EXPECT_FALSE(std::filesystem::exists(index_places(options).paths.at(0) + ".lock"));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace sprat::io
