// Ranks that are processes: killed, leaving, launched by torchrun's variables and by mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::comm {
namespace {

using ::testing::HasSubstr;

/// A forked process whose standard output is ours to read. Forked while this process has one
/// thread.
class Process {
 public:
  explicit Process(const std::function<void()>& body) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) {
      throw std::runtime_error("no pipe");
    }
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      try {
        body();
      } catch (const std::exception& error) {
        say(error.what());
      }
      _exit(0);
    }
    close(ends[1]);
    output_ = fdopen(ends[0], "r");
  }
  ~Process() {
    end(SIGKILL);
    if (output_ != nullptr) {
      std::fclose(output_);
    }
  }
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), output_(std::exchange(other.output_, nullptr)) {}

  /// In the process: one line, at once.
  static void say(const std::string& line) {
    const std::string out = line + "\n";
    if (write(STDOUT_FILENO, out.data(), out.size()) < 0) {
      _exit(1);
    }
  }
  /// The next line; empty at its end.
  std::string next() {
    std::array<char, 4096> line{};
    if (std::fgets(line.data(), line.size(), output_) == nullptr) {
      return "";
    }
    std::string said = line.data();
    said.erase(said.find_last_not_of('\n') + 1);
    return said;
  }
  void end(int signal) {
    if (pid_ <= 0) {
      return;
    }
    kill(pid_, signal);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::FILE* output_ = nullptr;
};

const char* word(Kind kind) {
  switch (kind) {
    case Kind::lost:
      return "lost";
    case Kind::farewell:
      return "farewell";
    case Kind::failed:
    case Kind::stalled:
    case Kind::query:
    case Kind::answer:
    case Kind::verdict:
      return "something else";
  }
  return "unknown";
}

std::string as_text(const ControlMessage& message) {
  return std::string(word(message.kind)) + " " + std::to_string(message.rank) + " " + message.text;
}

/// Joins, says so, then says what it hears, once.
void join_and_hear(const Config& config) {
  const auto rank = open_rendezvous(config);
  Ear ear(*rank);
  Process::say("joined");
  Process::say(as_text(ear.next()));
  std::_Exit(0);  // as a process that is ended from outside: no farewell
}

TEST(Processes, name_the_one_that_was_killed) {
  for (const int victim : {0, 2}) {
    const Folder folder;
    const auto configs = configs_at("file://" + (folder / "job").string(), 3);
    std::vector<Process> ranks;
    for (const Config& config : configs) {
      ranks.emplace_back([&] { join_and_hear(config); });
    }
    for (Process& rank : ranks) {
      EXPECT_EQ(rank.next(), "joined");
    }
    ranks[victim].end(SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) {
        continue;
      }
      EXPECT_EQ(ranks[rank].next(), "lost " + std::to_string(victim) + " its connection ended")
          << "rank " << rank;
    }
  }
}

TEST(Processes, name_the_one_that_was_killed_while_joining) {
  const Folder folder;
  auto configs = configs_at("file://" + (folder / "job").string(), 3);
  std::vector<Process> ranks;
  for (const Config& config : configs) {
    ranks.emplace_back([&] {
      const auto rank = open_rendezvous(config);
      Process::say("joined");
      if (rank->rank() == 1) {
        pause();
      }
      try {
        rank->exchange({}, "mapping memory", soon());
      } catch (const Error& error) {
        Process::say(error.what());
      }
    });
  }
  for (Process& rank : ranks) {
    EXPECT_EQ(rank.next(), "joined");
  }
  ranks[1].end(SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks[rank].next(), "mapping memory: lost rank 1: its connection ended");
  }
}

TEST(Processes, that_leave_in_good_order_are_not_lost) {
  const Folder folder;
  const auto configs = configs_at("file://" + (folder / "job").string(), 3);
  std::vector<Process> ranks;
  for (const Config& config : configs) {
    ranks.emplace_back([&] {
      auto rank = open_rendezvous(config);
      const std::string mine = std::to_string(getpid());
      const auto pids = rank->exchange(blob(mine), "meeting", soon());
      Ear ear(*rank);
      for (int other = 0; other < rank->size(); ++other) {
        if (other == rank->rank()) {
          continue;
        }
        const auto* digits = reinterpret_cast<const char*>(pids[other].data());
        rank->watch(other, std::stoi(std::string(digits, pids[other].size())));
      }
      rank->exchange({}, "watching", soon());
      for (int left = rank->rank(); left + 1 < rank->size(); ++left) {
        Process::say(as_text(ear.next()));  // highest ranks first, one after the other
      }
      rank.reset();
      Process::say("left");
    });
  }
  EXPECT_EQ(ranks[2].next(), "left");
  EXPECT_EQ(ranks[1].next(), "farewell 2 ");
  EXPECT_EQ(ranks[1].next(), "left");
  EXPECT_EQ(ranks[0].next(), "farewell 2 ");
  EXPECT_EQ(ranks[0].next(), "farewell 1 ");
  EXPECT_EQ(ranks[0].next(), "left");
}

TEST(Processes, are_watched_where_their_connection_says_nothing) {
  Process other([] { pause(); });
  auto ranks = open_rendezvous_in_process(3);
  Ear ear0(*ranks[0]), ear1(*ranks[1]);
  ranks[0]->watch(2, other.pid());
  const pid_t pid = other.pid();
  other.end(SIGKILL);
  const std::string text = "lost 2 its process " + std::to_string(pid) + " ended";
  EXPECT_EQ(as_text(ear0.next()), text);
  EXPECT_EQ(as_text(ear1.next()), text);  // by way of the coordinator
  ranks[1]->watch(0, pid);                // has ended before it is watched
  EXPECT_EQ(as_text(ear1.next()), "lost 0 its process " + std::to_string(pid) + " ended");
  leave(ranks);
}

/// Joins as the environment says and exchanges ranks.
void join_from_environment() {
  const auto rank = open_rendezvous(Config::from_environment());
  std::string line = "rank " + std::to_string(rank->rank()) + " met";
  for (const Blob& theirs : rank->exchange(blob(std::to_string(rank->rank())), "meeting", soon())) {
    line += " " + std::string(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  }
  Process::say(line);
}

TEST(Processes, meet_by_torchruns_variables) {
  // The agent of torchrun keeps the port for itself.
  for (const bool agent : {false, true}) {
    boost::asio::io_context io;
    std::optional<Listening> taken = listen_on(io, 0);
    const std::string port = std::to_string(taken->port);
    if (!agent) {
      taken.reset();
    }
    std::vector<Process> ranks;
    for (int rank = 2; rank >= 0; --rank) {
      ranks.emplace_back([&] {
        for (const char* variable : {"PMIX_RANK", "PMIX_NAMESPACE"}) {
          unsetenv(variable);
        }
        setenv("RANK", std::to_string(rank).c_str(), 1);
        setenv("WORLD_SIZE", "3", 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", port.c_str(), 1);
        if (agent) {
          setenv("TORCHELASTIC_RUN_ID", "a job", 1);
        }
        join_from_environment();
      });
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ranks[i].next(), "rank " + std::to_string(2 - i) + " met 0 1 2");
    }
  }
}

/// What mpirun starts below.
TEST(Launched, DISABLED_rank_meets_the_others) { join_from_environment(); }

TEST(Processes, meet_under_mpirun) {
  if (std::system("command -v mpirun >/dev/null") != 0) {
    GTEST_SKIP() << "needs mpirun";
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  // PMIx leaks at exit, and its threads are not built for the thread sanitizer.
  const std::string command =
      "ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 mpirun --allow-run-as-root "
      "--oversubscribe -np 3 '" +
      self +
      "' --gtest_also_run_disabled_tests --gtest_filter=Launched.DISABLED_rank_meets_the_others "
      "</dev/null 2>&1";
  std::FILE* output = popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string said;
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), buffer.size(), output) != nullptr) {
    said += buffer.data();
  }
  EXPECT_EQ(pclose(output), 0) << said;
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) {
    EXPECT_THAT(said, HasSubstr(std::string(rank) + " met 0 1 2"));
  }
}

}  // namespace
}  // namespace sprat::comm
