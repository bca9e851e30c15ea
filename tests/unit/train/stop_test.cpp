// Signals: a request while a run listens, the end of the process otherwise.
#include "train/stop.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace sprat::train {
namespace {

using namespace std::chrono_literals;
using testing::ExitedWithCode;
using testing::KilledBySignal;

void send(int signal) { kill(getpid(), signal); }

/// For bodies whose process a signal is to end; a test's own limit ends them otherwise.
[[noreturn]] void wait_for_the_end() {
  for (;;) {
    pause();
  }
}

/// Returns once the watcher has told the request.
void await(const StopRequest& request) {
  while (request.asked() == 0) {
    std::this_thread::yield();
  }
}

// A death test's child has one thread, so that no other takes the signal.

TEST(StopDeathTest, without_a_run_a_signal_ends_the_process) {
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          StopRequest request;
          const StopSignals signals(request);
          send(signal);
          wait_for_the_end();
        },
        KilledBySignal(signal), "");
  }
}

TEST(StopDeathTest, a_run_that_listens_is_asked_and_may_take_its_time_once_all_agree) {
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          StopRequest request;
          {
            const StopSignals signals(request);
            request.listen(0s);
            request.settle();
            send(signal);
            await(request);
          }
          _exit(request.asked());
        },
        ExitedWithCode(signal), "");
  }
}

TEST(StopDeathTest, gives_up_with_a_line_if_the_ranks_do_not_agree_in_time) {
  EXPECT_EXIT(
      {
        StopRequest request;
        const StopSignals signals(request);
        request.listen(0s);
        send(SIGTERM);
        wait_for_the_end();
      },
      ExitedWithCode(1), "did not agree on a stop within 0 s of signal 15: giving up");
}

TEST(StopDeathTest, does_not_give_up_while_a_save_waits_for_the_disk) {
  EXPECT_EXIT(
      {
        StopRequest request;
        const StopSignals signals(request);
        request.listen(1s);
        request.begin_save();
        send(SIGTERM);
        await(request);
        std::this_thread::sleep_for(1500ms);
        std::fputs("still here; ", stderr);
        request.end_save();
        wait_for_the_end();
      },
      ExitedWithCode(1), "^still here; sprat: the ranks did not agree");
}

TEST(StopDeathTest, a_save_that_never_ends_puts_it_off_but_not_for_ever) {
  EXPECT_EXIT(
      {
        StopRequest request;
        const StopSignals signals(request);
        request.listen(0s);
        request.begin_save();
        send(SIGTERM);
        wait_for_the_end();
      },
      ExitedWithCode(1), "did not agree on a stop");
}

TEST(StopDeathTest, grace_begins_anew_where_a_save_ends) {
  EXPECT_EXIT(
      {
        StopRequest request;
        const StopSignals signals(request);
        request.listen(3s);
        request.begin_save();
        send(SIGTERM);
        await(request);
        std::this_thread::sleep_for(2500ms);
        request.end_save();
        std::this_thread::sleep_for(1500ms);
        std::fputs("still here; ", stderr);
        wait_for_the_end();
      },
      ExitedWithCode(1), "^still here; sprat: the ranks did not agree");
}

// A pipe stands for the descriptor of a process, which is readable once it has ended.

TEST(StopDeathTest, the_launchers_end_asks_a_run_that_listens) {
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0) {
          _exit(99);
        }
        StopRequest request;
        {
          const StopSignals signals(request, ends[0]);
          request.listen(1h);
          request.settle();
          static_cast<void>(write(ends[1], "x", 1));
          await(request);
        }
        _exit(request.asked());
      },
      ExitedWithCode(SIGHUP), "");
}

TEST(StopDeathTest, the_launchers_end_ends_a_process_that_does_not_listen) {
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0) {
          _exit(99);
        }
        StopRequest request;
        const StopSignals signals(request, ends[0]);
        static_cast<void>(write(ends[1], "x", 1));
        wait_for_the_end();
      },
      ExitedWithCode(1), "the launcher has ended, and so does this rank");
}

TEST(StopDeathTest, the_launchers_end_leaves_no_more_than_the_grace) {
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0) {
          _exit(99);
        }
        StopRequest request;
        const StopSignals signals(request, ends[0]);
        request.listen(0s);
        static_cast<void>(write(ends[1], "x", 1));
        wait_for_the_end();
      },
      ExitedWithCode(1), "did not agree on a stop within 0 s of the launcher's end: giving up");
}

TEST(StopDeathTest, a_second_interrupt_ends_the_process_at_once) {
  EXPECT_EXIT(
      {
        StopRequest request;
        const StopSignals signals(request);
        request.listen(1h);
        send(SIGTERM);
        await(request);
        send(SIGTERM);  // launchers repeat it
        send(SIGINT);
        wait_for_the_end();
      },
      KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace sprat::train
