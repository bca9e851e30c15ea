// Signals as a descriptor that a thread reads: no code runs in a handler.
#include "train/stop.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "sprat/error.hpp"

namespace sprat::train {
namespace {

/// How often a save that takes longer than the grace is looked at.
constexpr std::chrono::milliseconds look_again{100};
/// How many times the grace saves may take together.
constexpr int most_graces = 30;

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

/// Whoever reads standard error may be gone.
void complain(const std::string& line) {
  static_cast<void>(std::fputs(("sprat: " + line + "\n").c_str(), stderr));
}

/// Ends the process by `signal` itself, so that whoever waits for it sees that.
void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // pending until the mask lets it through
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace

StopSignals::StopSignals(StopRequest& request, int launcher)
    : request_(request), launcher_(launcher) {
  if (launcher_ >= 0) {  // it reads what we write: its end must not be ours before all is saved
    pipe_before_ = std::signal(SIGPIPE, SIG_IGN);
  }
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  end_ = eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || end_ < 0) {
    throw Error(ErrorCode::unavailable,
                fmt::format("cannot watch for signals: {}", std::strerror(errno)));
  }
  watcher_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
  const std::uint64_t one = 1;
  if (write(end_, &one, sizeof one) != sizeof one) {
    std::abort();  // an eventfd takes a first 1
  }
  watcher_.join();
  if (launcher_ >= 0) {
    std::signal(SIGPIPE, pipe_before_);
  }
  close(signals_);
  close(end_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int StopSignals::left() const {
  if (deadline_ == Clock::time_point::max() || request_.settled()) {
    return -1;
  }
  const auto over = std::min(last_, std::max(deadline_, request_.save_ended() + request_.grace()));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(over - Clock::now());
  return static_cast<int>(std::max(std::int64_t{0}, std::int64_t{left.count()}));
}

void StopSignals::watch() {
  pollfd watched[] = {{.fd = signals_, .events = POLLIN, .revents = 0},
                      {.fd = end_, .events = POLLIN, .revents = 0},
                      {.fd = launcher_, .events = POLLIN, .revents = 0}};
  while ((watched[1].revents & POLLIN) == 0) {
    const bool saving = request_.saving();  // first: if it has ended, left() knows when
    const int wait = left();
    if (wait == 0 && saving && Clock::now() < last_) {
      deadline_ = Clock::now() + look_again;
      continue;
    }
    if (wait == 0) {
      complain(fmt::format(
          "the ranks did not agree on a stop within {} s of {}: giving up, the last checkpoint is "
          "what is left (train.stop_grace_s)",
          request_.grace().count(),
          request_.asked() == SIGHUP ? "the launcher's end"
                                     : fmt::format("signal {}", request_.asked())));
      std::_Exit(1);
    }
    if (poll(watched, std::size(watched), wait) <= 0) {
      continue;
    }
    if ((watched[0].revents & POLLIN) != 0) {
      receive();
    }
    if ((watched[2].revents & POLLIN) != 0) {
      watched[2].fd = -1;  // it stays readable
      lose_launcher();
    }
  }
}

void StopSignals::receive() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (!request_.listening() || (request_.asked() != 0 && signal == SIGINT)) {
      end_by(signal);
    } else if (request_.asked() == 0) {
      ask(signal);
    }
  }
}

void StopSignals::lose_launcher() {
  if (!request_.listening()) {
    complain("the launcher has ended, and so does this rank");
    std::_Exit(1);
  }
  if (request_.asked() == 0) {
    ask(SIGHUP);
  }
}

void StopSignals::ask(int signal) {
  deadline_ = Clock::now() + request_.grace();
  last_ = Clock::now() + most_graces * request_.grace();
  request_.ask(signal);
}

}  // namespace sprat::train
