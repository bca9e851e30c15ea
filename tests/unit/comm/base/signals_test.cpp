// Whose the signals are of a process that has joined a job.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

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

}  // namespace
}  // namespace sprat
