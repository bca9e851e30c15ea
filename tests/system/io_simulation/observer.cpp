#include "tests/system/io_simulation/observer.hpp"

#include <algorithm>
#include <utility>

namespace sprat::io_simulation {
namespace {

/// The nearest value to that share of the sorted ones; 0 of none.
double value_at(std::vector<double>& values, double share) {
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace

Observer::Observer(double network, const io::SchedulerLimits& limits, const HostModel& host)
    : network_(network), limits_(limits), host_(host) {}

void Observer::passes(double seconds, const Meanwhile& meanwhile) {
  const io::Scheduler& scheduler = meanwhile.scheduler;
  double queued = 0, cap = 0;
  for (const io::TargetLoad& load : scheduler.targets()) {
    TargetNotes& notes = targets_[load.target];
    notes.in_flight_seconds += load.reads_in_flight * seconds;
    notes.cap_seconds += load.cap * seconds;
    queued += static_cast<double>(load.queued);
    cap += load.cap;
  }
  sums_.in_flight += scheduler.in_flight() * seconds;
  sums_.cap += std::min<double>(limits_.reads, cap) * seconds;
  sums_.queued += queued * seconds;
  sums_.restores += meanwhile.reads_wait_for_restore * seconds;
  sums_.waits += meanwhile.computes ? 0 : seconds;
  sums_.decodes += meanwhile.decodes ? seconds : 0;
  sums_.full += scheduler.in_flight() == 0 && queued == 0 && scheduler.waiting() > 0 ? seconds : 0;
  now_.budget_used_bytes = scheduler.budget_used();
}

void Observer::opened(const std::vector<SimulatedOpen>& opens) {
  for (const SimulatedOpen& open : opens) {
    opens_.push_back(open.took_s);
  }
}

void Observer::ended(const SimulatedDone& done) {
  TargetNotes& notes = targets_[done.target];
  notes.bytes += done.bytes;
  notes.errors += done.error != 0 ? 1 : 0;
  notes.cut += done.cut ? 1 : 0;
  notes.took.push_back(done.took_s);
}

void Observer::took(const std::vector<io::Extents>& batch) {
  now_.samples += batch.size();
  for (const io::Extents& sample : batch) {
    for (const io::Extent& extent : sample) {
      now_.bytes.file_system += extent.bytes;
    }
  }
}

void Observer::reduces(double seconds) {
  ++reductions_;
  reduced_in_ += seconds;
}

void Observer::reach(double now, std::uint64_t restored_bytes, std::uint64_t released_bytes) {
  now_.released.restored_bytes += restored_bytes;
  now_.released.left_bytes = released_bytes;
  if (now >= next_second()) {
    close(now);
  }
}

void Observer::close(double now) {
  const double seconds = now - begin_;
  now_.begin_s = begin_;
  now_.seconds = seconds;
  std::uint64_t received = 0;
  for (auto& [target, notes] : targets_) {
    received += notes.bytes;
    if (notes.took.empty() && notes.in_flight_seconds == 0) {
      continue;
    }
    now_.targets.push_back({.target = target,
                            .bytes = notes.bytes,
                            .reads = notes.took.size(),
                            .errors = notes.errors,
                            .short_reads = notes.cut,
                            .p50_s = value_at(notes.took, 0.5),
                            .p95_s = value_at(notes.took, 0.95),
                            .p99_s = value_at(notes.took, 0.99),
                            .in_flight = notes.in_flight_seconds / seconds,
                            .in_flight_cap = notes.cap_seconds / seconds});
  }
  now_.in_flight = sums_.in_flight / seconds;
  now_.in_flight_cap = sums_.cap / seconds;
  now_.queued = sums_.queued / seconds;
  now_.budget_bytes = limits_.budget_bytes;
  now_.consumer_wait = sums_.waits / seconds;
  now_.budget_wait = sums_.full / seconds;
  now_.opens = {.files = opens_.size(), .p95_s = value_at(opens_, 0.95)};
  now_.released.reads_blocked = sums_.restores / seconds;
  if (host_.decode_s > 0) {
    now_.stages = {{.name = "decode",
                    .threads = host_.decode_threads,
                    .busy_seconds = host_.decode_threads * sums_.decodes}};
  }
  if (host_.cores > 0) {
    // Whoever waits for a core uses none, so together they use what there is at most.
    const double wanted = host_.decode_threads * sums_.decodes + host_.reduce_s * reductions_;
    const double given = std::min(1.0, host_.cores * seconds / std::max(wanted, 1e-9));
    now_.cores = io::CoresInterval{
        .budget = host_.cores,
        .decode_seconds = given * host_.decode_threads * sums_.decodes,
        .reduce_seconds = given * host_.reduce_s * reductions_,
        .reduced_bytes = static_cast<std::uint64_t>(reductions_) * host_.reduce_bytes,
        .reduced_in_seconds = reduced_in_};
    reductions_ = reduced_in_ = 0;
  }
  now_.nic_bytes = received;
  now_.link_bytes_per_second = network_;
  intervals_.push_back(std::exchange(now_, {}));
  targets_.clear();
  opens_.clear();
  sums_ = {};
  begin_ = now;
}

std::vector<io::Interval> Observer::finish(double now) {
  if (now > begin_) {
    close(now);
  }
  return std::move(intervals_);
}

}  // namespace sprat::io_simulation
