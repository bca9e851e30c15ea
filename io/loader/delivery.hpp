// Batches in their order, from those who make them to whoever takes them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "io/loader/assembly.hpp"

namespace sprat::io {

/// Any thread, several at once.
class Delivery final {
 public:
  using Clock = std::chrono::steady_clock;
  /// Copies some rows of a batch that is under way, instead of sleeping.
  using Help = std::function<void(const std::shared_ptr<BatchBuild>&)>;

  /// help: empty, or what whoever waits in take() or wait() does while rows are open.
  explicit Delivery(Help help = {}) : help_(std::move(help)) {}

  /// It is under way, behind all that were announced before.
  void announce(std::shared_ptr<BatchBuild> build);
  /// No batch follows those that were announced.
  void end();
  /// So many samples less are missing.
  void sample_done(const std::shared_ptr<BatchBuild>& build, std::size_t samples = 1);
  /// take() throws this in its place.
  void fail(const std::shared_ptr<BatchBuild>& build, std::exception_ptr error);
  /// The same for all that are not ready, and whatever would follow.
  void fail_all(std::exception_ptr error);

  struct Taken {
    std::shared_ptr<DataBatch::Impl> batch;  ///< Null: that was the end.
    std::shared_ptr<BatchBuild> build;
    bool was_ready = false;
    std::uint64_t ready_bytes = 0;  ///< Of the batches that lie ready behind it.
    bool makes_room = false;        ///< As ask_for_room() asked.
  };
  /// The next one, as soon as it is ready; nothing if it is not by then. Throws the batch's error.
  std::optional<Taken> take(Clock::time_point deadline);

  /// Whether take() would not wait, as soon as it would not; false if it still would by then.
  bool wait(Clock::time_point deadline);

  /// The next take() that leaves so few bytes untaken says so. False if they are that few now.
  bool ask_for_room(std::uint64_t most_untaken);

  /// Of batches that were announced and not taken.
  std::uint64_t untaken_bytes() const;
  /// That were announced and not taken.
  std::size_t untaken() const;
  /// Whether somebody is in take().
  bool waited_for() const;
  struct AwaitedBatch {
    std::uint64_t index = 0;          ///< Of the batch.
    std::uint64_t last_position = 0;  ///< Of its last sample, as BatchBuild::begin counts.
  };
  /// What whoever is in take() waits for; none if nobody is, or it is ready or not announced.
  std::optional<AwaitedBatch> awaited() const;
  /// How long somebody was in take(), in all.
  std::chrono::nanoseconds waited() const;

 private:
  bool front_is_ready() const;
  std::shared_ptr<BatchBuild> build_to_help() const;
  bool front_ends_soon() const;
  void count_ready();
  bool wait(std::unique_lock<std::mutex>& lock, Clock::time_point deadline);

  const Help help_;
  mutable std::mutex mutex_;  // guards what follows, and errors of builds
  std::condition_variable changed_;
  std::deque<std::shared_ptr<BatchBuild>> builds_;
  std::uint64_t untaken_bytes_ = 0;
  std::size_t ready_ = 0;  // of the first builds, those that were found ready
  std::uint64_t ready_bytes_ = 0;
  std::optional<std::uint64_t> wanted_untaken_;
  std::chrono::nanoseconds waited_{};
  std::optional<Clock::time_point> waits_since_;
  std::exception_ptr error_;                  // behind the last build
  bool ended_ = false, had_to_wait_ = false;  // had to: for the batch that is next
};

}  // namespace sprat::io
