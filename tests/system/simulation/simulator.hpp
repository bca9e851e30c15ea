// One thread, many stacks, a clock of its own: who runs next is drawn from a seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/context/wait_policy.hpp"
#include "tests/system/simulation/fiber.hpp"
#include "tests/system/simulation/random.hpp"

namespace sprat::simulation {

using Time = comm::Clock::time_point;
using std::chrono::nanoseconds;

/// Virtual ranks have tasks, each on its fiber. Time passes a little with every turn, and jumps
/// when nobody can run. A seed and a program give one run.
class Simulator {
 public:
  Simulator(std::uint64_t seed, int ranks, bool trace);
  ~Simulator();

  Time now() const { return now_; }
  Random& random() { return random_; }
  void trace(int rank, const std::string& text);
  /// A digest of everything traced: two runs that are the same have the same.
  std::uint64_t digest() const { return digest_; }
  std::uint64_t turns() const { return turns_; }

  void spawn(int rank, std::function<void()> body);
  /// A task that run() does not wait for.
  void serve(int rank, std::function<void()> body);
  /// Runs `action` at that time, outside all tasks.
  void at(Time time, std::function<void()> action);
  /// The same, not while `rank` is stopped; never if it is dead by then.
  void at(int rank, Time time, std::function<void()> action);
  /// Until every spawned task of a living rank has ended. False: the limit came first, or nobody
  /// can move.
  bool run(Time limit);

  // --- a rank's fate; from anywhere ---
  void kill(int rank);
  void stop(int rank);
  void go_on(int rank);
  bool dead(int rank) const { return fates_[rank].dead; }
  bool stopped(int rank) const { return fates_[rank].stopped; }
  /// Calls `action` in the midst of the rank's n-th turn point from now on.
  void after_points(int rank, std::uint64_t points, std::function<void()> action);

  // --- from within a task ---
  /// Others may run here.
  void point();
  /// Others run now, if any can.
  void yield();
  /// Until `condition` holds.
  void wait_for(std::function<bool()> condition);
  /// True if the sleep ended by wake_rank(), false if by its time.
  bool sleep(nanoseconds timeout);
  /// The same, but it ends when this holds, and not by wake_rank().
  bool poll(nanoseconds timeout, std::function<bool()> readable);
  /// Whether all others slept too when that sleep's time was out: nobody was between writing and
  /// ringing.
  bool slept_out() const;
  /// Ends the sleeps of a rank's tasks.
  void wake_rank(int rank);
  /// While positive, the running task is not left at points.
  int& undivided();

  /// From now on sleeps may end by their time: a rank may be gone between writing and ringing.
  void excuse_sleepers() { sleepers_excused_ = true; }
  bool sleepers_excused() const { return sleepers_excused_; }
  /// What went wrong; the first is kept.
  void violation(const std::string& text);
  const std::string& violations() const { return violation_; }

 private:
  struct Task {
    int rank;
    bool serves;
    std::unique_ptr<Fiber> fiber;
    bool sleeping = false, woken = false, slept_out = false;
    Time wake_at{};
    std::function<bool()> condition;  ///< Of wait_for() and poll(). Empty: none.
    int undivided = 0;
  };
  struct Fate {
    bool dead = false, stopped = false;
    std::vector<std::function<void()>> deferred;  ///< Due while it was stopped.
    std::uint64_t points = 0, trigger = 0;
    std::function<void()> triggered;
  };

  void add(int rank, bool serves, std::function<void()> body);
  bool can_run(Task& task);
  Task* choose();
  bool jump(Time limit);
  void count_point();
  void leave();

  Random random_;
  bool trace_;
  std::uint64_t digest_ = 0, turns_ = 0, events_ = 0;
  Time now_;
  std::vector<std::unique_ptr<Task>> tasks_;
  Task* running_ = nullptr;
  std::vector<Fate> fates_;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> queue_;
  std::uint64_t stickiness_, point_rate_;  ///< Drawn from the seed.
  bool sleepers_excused_ = false;
  std::string violation_;
};

/// A rank's wait policy in the simulation.
class VirtualWaitPolicy final : public comm::WaitPolicy {
 public:
  /// `news`: whether the rank's wire has any, if it has descriptors. The other one of poll() is
  /// real.
  VirtualWaitPolicy(Simulator& simulator, int rank, std::function<bool()> news);
  Time now() noexcept override;
  Time recent() noexcept override;
  bool rest(int idle_rounds, comm::Awaited awaited) noexcept override;
  void yield() noexcept override;
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
             nanoseconds timeout) noexcept override;
  void poll(std::span<pollfd> descriptors, nanoseconds timeout) noexcept override;
  void wake(std::atomic<std::uint32_t>& word, int owner) noexcept override;
  void lock(std::mutex& mutex) noexcept override;
  void point() noexcept override;

 private:
  /// `sleeps` at most for so long, and tells whether it was woken.
  void nap(nanoseconds timeout, const std::function<bool(nanoseconds)>& sleeps);
  /// The sleeper that nobody woke has looked round.
  void look_back(bool found);

  Simulator& simulator_;
  int rank_, most_rests_;
  std::function<bool()> news_;
  bool overslept_ = false;  ///< The last sleep ended by its time; nothing has been tried since.
  int naps_ = 0;            ///< Sleeps in a row that ended by their time.
};

}  // namespace sprat::simulation
