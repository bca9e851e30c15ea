// Sums of an interval. Whoever reads, waits or computes only adds to them: all that costs thought,
// means and percentiles, is left to who asks once a second.
#include "io/loader/observer.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::string what_to_do_about(const QueueState& queues) {
  if (!queues.waits_for.empty()) {
    return text("; ", queues.released.reads_blocked,
                " more wait for files that are restored from "
                "the archive, ",
                queues.waits_for,
                " first: look at `lfs hsm_state` of it, restore "
                "files before the run (lfs hsm_restore), or raise the timeout");
  }
  return queues.budget_blocks
             ? "; the rest waits for memory: let go of batches, or raise memory_bytes"
             : "; look at the log for reads that hang, or raise the timeout";
}

Observer::Observer(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

TargetReads& Observer::reads_of(Target target) {
  return targets_.try_emplace(target, interval_begin_).first->second;
}

void Observer::read_ended(const ReadDone& done, Target target, std::uint64_t asked_bytes) {
  const std::lock_guard lock(mutex_);
  reads_of(target).add(done, asked_bytes);
  (done.cached ? sums_.bytes.page_cache : sums_.bytes.file_system) += done.bytes;
}

void Observer::brought_near(BlockSource source, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  (source == BlockSource::peer ? sums_.bytes.peers : sums_.bytes.host_cache) += bytes;
}

void Observer::reads_were_cached(const CachedReadSum& sum) {
  const std::lock_guard lock(mutex_);
  reads_of(sum.target).add(sum);
  sums_.bytes.page_cache += sum.bytes;
}

void Observer::file_opened(std::chrono::nanoseconds took) {
  const std::lock_guard lock(mutex_);
  ++sums_.opens;
  sums_.open_latency.add(seconds(took));
}

void Observer::queues_are(const QueueState& state, std::span<const TargetLoad> targets) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  queues_ = state;
  in_flight_.becomes(state.in_flight, now);
  cap_.becomes(state.cap, now);
  queued_.becomes(state.queued, now);
  blocked_.becomes(state.budget_blocks ? 1 : 0, now);
  held_.becomes(state.released.reads_blocked, now);
  sums_.restored_bytes += state.released.restored_bytes;
  for (const TargetLoad& load : targets) {
    reads_of(load.target).queue_is(load.reads_in_flight, load.cap, now);
  }
}

QueueState Observer::queues() const {
  const std::lock_guard lock(mutex_);
  return queues_;
}

void Observer::samples_given(std::uint64_t samples) {
  const std::lock_guard lock(mutex_);
  sums_.samples += samples;
}

void Observer::step_ended(double seconds) {
  const std::lock_guard lock(mutex_);
  sums_.steps.push_back(seconds);
}

Interval Observer::take(const Totals& totals) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  const Clock::time_point since = std::exchange(interval_begin_, now);
  const Totals before = std::exchange(before_, totals);
  const Sums sums = std::exchange(sums_, {});
  Interval interval;
  interval.begin_s = seconds(since - begin_);
  interval.seconds = std::max(seconds(now - since), 1e-9);  // reports divide by it
  interval.samples = sums.samples;
  interval.bytes = sums.bytes;
  for (auto& [target, reads] : targets_) {
    const TargetInterval of_target = reads.take(target, now);
    if (of_target.reads > 0 || of_target.in_flight > 0) {
      interval.targets.push_back(of_target);
    }
  }
  interval.in_flight = in_flight_.take(now);
  interval.in_flight_cap = cap_.take(now);
  interval.queued = queued_.take(now);
  interval.budget_used_bytes = queues_.budget_used;
  interval.budget_bytes = budget_bytes_;
  // A wait that is still going on counts up to now, so shares could pass 1 by a rounding.
  interval.consumer_wait = std::min(1.0, seconds(totals.waited - before.waited) / interval.seconds);
  interval.budget_wait = std::min(1.0, blocked_.take(now));
  interval.stages = totals.stages;
  for (std::size_t i = 0; i < interval.stages.size() && i < before.stages.size(); ++i) {
    interval.stages[i].busy_seconds -= before.stages[i].busy_seconds;
  }
  interval.cores = totals.cores;
  interval.opens = {.files = sums.opens, .p95_s = sums.open_latency.percentile(0.95)};
  interval.step_seconds = sums.steps;
  interval.released = {.reads_blocked = held_.take(now),
                       .restored_bytes = sums.restored_bytes,
                       .left_bytes = queues_.released.left_bytes};
  return interval;
}

}  // namespace sprat::io
