// Whose the signals are of a process that has joined a job.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "sprat/communicator.hpp"

namespace sprat {
namespace {

/// How a child ends that does `before`, joins a job of its own and then gets `signal`.
int status_of_child(const std::function<void()>& before, int signal) {
  const pid_t child = fork();
  if (child == 0) {
    before();
    Config alone;
    alone.size = 1;
    alone.rank = 0;
    const auto world = Communicator::join(alone);
    raise(signal);
    _exit(7);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Signals, end_a_program_as_the_system_does) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const int status = status_of_child([] {}, signal);
    ASSERT_TRUE(WIFSIGNALED(status)) << "signal " << signal << ": " << status;
    EXPECT_EQ(WTERMSIG(status), signal);
  }
}

TEST(Signals, that_the_program_handles_or_ignores_stay_its_own) {
  const int handled = status_of_child([] { std::signal(SIGINT, [](int) { _exit(3); }); }, SIGINT);
  EXPECT_EQ(WEXITSTATUS(handled), 3);
  const int ignored = status_of_child([] { std::signal(SIGTERM, SIG_IGN); }, SIGTERM);
  EXPECT_EQ(WEXITSTATUS(ignored), 7);
}

/// What libinfinipath, which Debian's libfabric brings along, would take.
constexpr std::array taken = {SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM};

std::array<void*, taken.size()> handlers() {
  std::array<void*, taken.size()> now{};
  for (std::size_t index = 0; index < taken.size(); ++index) {
    struct sigaction action {};
    sigaction(taken[index], nullptr, &action);
    now[index] = reinterpret_cast<void*>(action.sa_handler);  // also where it is a sa_sigaction
  }
  return now;
}

bool has_loaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) {
      return true;
    }
  }
  return false;
}

enum Outcome { kept = 0, changed = 1, no_infinipath = 2, loaded_before = 3, failed = 4 };

/// Of one of two ranks that say they are on two hosts, so that libfabric is loaded.
Outcome join_from_another_host(int rank, const std::string& place) {
  unsetenv("IPATH_NO_BACKTRACE");
  if (has_loaded("libinfinipath")) {
    return loaded_before;
  }
  const auto before = handlers();
  Config config;
  config.rank = rank;
  config.size = 2;
  config.rendezvous = "file://" + place;
  config.host = "a,b";
  config.provider = "tcp";
  try {
    Communicator world = Communicator::join(config);
    world.barrier();
    if (!has_loaded("libinfinipath")) {
      return no_infinipath;
    }
    return handlers() == before ? kept : changed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return failed;
  }
}

TEST(Signals, stay_as_they_are_where_libfabric_is_loaded) {
  const std::string place =
      std::filesystem::temp_directory_path() / ("sprat_signals_" + std::to_string(getpid()));
  std::array<pid_t, 2> children{};
  for (int rank = 0; rank < 2; ++rank) {
    children[static_cast<std::size_t>(rank)] = fork();
    if (children[static_cast<std::size_t>(rank)] == 0) {
      _exit(join_from_another_host(rank, place));
    }
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    if (WEXITSTATUS(status) == no_infinipath) {
      GTEST_SKIP() << "this libfabric brings no libinfinipath along, as Debian's does";
    }
    if (WEXITSTATUS(status) == loaded_before) {
      GTEST_SKIP() << "wants a process in which nobody has loaded libfabric before";
    }
    EXPECT_EQ(WEXITSTATUS(status), kept);
  }
}

TEST(Signals, that_libfabric_took_when_the_program_loaded_it_are_the_systems_again) {
  const auto load = [] {
    unsetenv("IPATH_NO_BACKTRACE");
    const auto before = handlers();
    dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handlers() == before) {
      _exit(no_infinipath);
    }
  };
  const int status = status_of_child(load, SIGINT);
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_infinipath) {
    GTEST_SKIP() << "this libfabric takes no signals, as Debian's does by libinfinipath, or was "
                    "loaded in this process before";
  }
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

}  // namespace
}  // namespace sprat
