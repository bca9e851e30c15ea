// A stop that is asked for from outside, by SIGTERM or SIGINT, or by the end of the launcher.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

namespace sprat::train {

/// What this process knows of a stop. Any thread; ranks that are threads share one.
class StopRequest {
 public:
  using Clock = std::chrono::steady_clock;

  /// The run looks at asked() from now on, at each step. All ranks should know within `grace`.
  void listen(std::chrono::seconds grace) {
    grace_s_ = grace.count();
    listening_ = true;
  }
  /// What matters is saved: a signal ends the process from now on.
  void stop_listening() { listening_ = false; }
  bool listening() const { return listening_; }
  std::chrono::seconds grace() const { return std::chrono::seconds(grace_s_); }

  void ask(int signal) { signal_ = signal; }
  /// The signal, or 0; SIGHUP if the launcher has ended.
  int asked() const { return signal_; }

  /// Between the two a save may wait for the disk, longer than a step takes: grace begins anew at
  /// its end.
  void begin_save() { ++saves_; }
  void end_save() {
    save_ended_ = Clock::now().time_since_epoch().count();
    --saves_;
  }
  bool saving() const { return saves_ > 0; }
  /// Of the last save that ended.
  Clock::time_point save_ended() const { return Clock::time_point(Clock::duration(save_ended_)); }

  /// All ranks know of the request, or the run is past its steps: nobody waits for them any more.
  void settle() { settled_ = true; }
  bool settled() const { return settled_; }

 private:
  // Each is one fact by itself; what it announces to other ranks travels by collectives.
  std::atomic<bool> listening_ = false, settled_ = false;
  std::atomic<int> signal_ = 0, saves_ = 0;
  std::atomic<Clock::rep> save_ended_ = 0;
  std::atomic<std::int64_t> grace_s_ = 0;
};

/// Turns the first SIGTERM or SIGINT into a request while the run listens. Without a run, and at a
/// second SIGINT, the signal ends the process as it always would. If the ranks have not settled
/// within the request's grace of the first, the process says so in one line and ends with status 1:
/// then a peer does not answer, and only the last checkpoint is left to go on from. Saves put that
/// off, but not for ever: a peer may be what a save waits for. The end of the launcher, if there is
/// one to watch, asks as SIGTERM does, and ends the process with status 1 where no run listens:
/// nobody is left who would end this rank, and the next job wants its place.
class StopSignals {
 public:
  /// Blocks both signals in this thread and in those it starts, which must be all of the process.
  /// `launcher` becomes readable when the launcher ends; -1: nobody watches. Borrowed.
  explicit StopSignals(StopRequest& request, int launcher = -1);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void watch();
  void receive();
  void lose_launcher();
  void ask(int signal);
  /// Milliseconds until the grace is over; -1: none runs.
  int left() const;

  using Clock = StopRequest::Clock;
  StopRequest& request_;
  // The watcher's own: when it gives up unless a save is under way, and in any case.
  Clock::time_point deadline_ = Clock::time_point::max(), last_ = Clock::time_point::max();
  sigset_t before_{};
  void (*pipe_before_)(int) = SIG_DFL;
  int launcher_;
  int signals_ = -1, end_ = -1;  // descriptors: what came, and that this object goes
  std::thread watcher_;
};

}  // namespace sprat::train
