// A request waits for room in the budget, then in the queue of its target, is under way once or
// several times, and has ended; it keeps its room until it is released.
#include "io/reading/scheduler.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <tuple>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"

namespace sprat::io {
namespace {

/// Tries at once, in a row and without a byte; then it counts as a failure and waits.
constexpr std::uint32_t most_idle_tries = 16;

std::pair<std::uint64_t, std::uint64_t> place_in_queue(const Request& request) {
  return {request.due, request.id};
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits) {
  require(limits.reads > 0, "no read would ever start; allow one under way at least");
}

void Scheduler::add(std::span<const Request> requests) {
  for (const Request& request : requests) {
    require(request.extent.bytes <= limits_.budget_bytes, "a request of ", request.extent.bytes,
            " bytes never fits a budget of ", limits_.budget_bytes,
            "; raise the budget, or plan smaller requests");
    require(!entries_.contains(request.id), "request ", request.id, " was added before");
  }
  for (const Request& request : requests) {
    entries_.emplace(request.id, ScheduledRead{.request = request});
    waiting_.insert(place_in_queue(request));
  }
  admit();
}

void Scheduler::bring_forward(std::uint64_t id, std::uint64_t due) {
  const auto found = entries_.find(id);
  require(found != entries_.end(), "request ", id, " is unknown, so it cannot be due earlier");
  ScheduledRead& entry = found->second;
  if (due >= entry.request.due) {
    return;
  }
  const auto was = place_in_queue(entry.request);
  entry.request.due = due;
  const auto move_in = [&](Queue& queue) {
    queue.erase(was);
    queue.insert(place_in_queue(entry.request));
  };
  if (entry.stage == Stage::queued) {
    move_in(targets_.at(entry.request.target).queue);
  } else if (entry.stage == Stage::waiting) {
    move_in(waiting_);
    admit();  // it may fit where the one before it did not
  }
}

/// Strictly in order: a later request that would fit must not take what an earlier one waits for.
void Scheduler::admit() {
  while (!waiting_.empty()) {
    const ScheduledRead& entry = entries_.at(waiting_.begin()->second);
    if (used_bytes_ + entry.request.extent.bytes > limits_.budget_bytes) {
      return;
    }
    admit_next();
  }
}

void Scheduler::admit_next() {
  ScheduledRead& entry = entries_.at(waiting_.begin()->second);
  used_bytes_ += entry.request.extent.bytes;
  waiting_.erase(waiting_.begin());
  enqueue(entry);
}

void Scheduler::exceed_budget(std::uint64_t position) {
  while (!waiting_.empty() && waiting_.begin()->first <= position) {
    admit_next();
  }
}

void Scheduler::enqueue(ScheduledRead& entry) {
  if (const auto held = held_.find(entry.request.extent.file); held != held_.end()) {
    entry.stage = Stage::held;
    held->second.push_back(entry.request.id);
    return;
  }
  entry.stage = Stage::queued;
  const auto target = targets_.try_emplace(entry.request.target, limits_.flow).first;
  target->second.queue.insert(place_in_queue(entry.request));
}

/// Lustre's own: so many calls of 1 MiB at once. Fewer and smaller ones keep no target busy,
/// whatever their times say: those of short reads vary more than a queue adds.
constexpr std::uint32_t calls_in_flight = 8;
constexpr std::uint64_t call_bytes = std::uint64_t{1} << 20;

/// A target that has failed gets one read at a time until one succeeds: the rest would fail beside
/// it.
bool Scheduler::has_room(const TargetQueue& target, std::uint64_t bytes, Moment now) const {
  if (target.reads_in_flight == 0) {
    return target.failures == 0 || now >= target.blocked_until;
  }
  const std::uint64_t after = target.bytes_in_flight + bytes;
  const bool few = target.reads_in_flight < std::min(calls_in_flight, limits_.flow.most_reads) &&
                   after <= calls_in_flight * call_bytes;
  return target.failures == 0 && after <= limits_.target_bytes &&
         (few || target.reads_in_flight < target.flow.cap());
}

std::optional<ReadStart> Scheduler::next(Moment now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const std::uint64_t id = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    enqueue(entries_.at(id));
  }
  if (in_flight_ >= limits_.reads) {
    return std::nullopt;
  }
  TargetQueue* best = nullptr;
  std::tuple<std::uint64_t, std::uint32_t> best_rank;
  for (auto& [number, target] : targets_) {
    if (target.queue.empty()) {
      continue;
    }
    const auto& [due, id] = *target.queue.begin();
    if (!has_room(target, entries_.at(id).rest(), now)) {
      target.held_back = true;
      continue;
    }
    // The parts of one sample are due at once: then the least busy target is first.
    const std::uint32_t cap = target.flow.cap();
    const std::tuple rank(due, target.reads_in_flight + limits_.flow.most_reads - cap);
    if (best == nullptr || rank < best_rank) {
      best = &target;
      best_rank = rank;
    }
  }
  if (best == nullptr) {
    return std::nullopt;
  }
  return start(*best, now);
}

ReadStart Scheduler::start(TargetQueue& target, Moment now) {
  ScheduledRead& entry = entries_.at(target.queue.begin()->second);
  target.queue.erase(target.queue.begin());
  const Request& request = entry.request;
  const ReadStart start{.id = request.id,
                        .extent = {.file = request.extent.file,
                                   .offset = request.extent.offset + entry.got,
                                   .bytes = entry.rest()},
                        .into = entry.got,
                        .target = request.target,
                        .reopen = std::exchange(entry.reopen, false)};
  entry.stage = Stage::in_flight;
  entry.started = now;
  entry.told_hung = false;
  ++target.reads_in_flight;
  target.bytes_in_flight += start.extent.bytes;
  ++in_flight_;
  return start;
}

ReadVerdict Scheduler::done(std::uint64_t id, std::uint64_t bytes, int error, Moment now) {
  const auto found = entries_.find(id);
  require(found != entries_.end() && found->second.stage == Stage::in_flight, "request ", id,
          " is not under way");
  ScheduledRead& entry = found->second;
  require(bytes <= entry.rest(), "request ", id, " asked for ", entry.rest(), " bytes and got ",
          bytes);
  TargetQueue& target = targets_.at(entry.request.target);
  --in_flight_;
  --target.reads_in_flight;
  target.bytes_in_flight -= entry.rest();
  ++target.reads;
  if (error != 0) {
    return failed(entry, error, now);
  }
  target.bytes += bytes;
  target.failures = 0;
  target.flow.finished({.bytes = bytes,
                        .took = now - entry.started,
                        .held_back = std::exchange(target.held_back, false)},
                       now);
  return brought(entry, bytes, now);
}

ReadVerdict Scheduler::brought(ScheduledRead& entry, std::uint64_t bytes, Moment now) {
  const Request& request = entry.request;
  if (entry.got + bytes >= request.in_file_bytes) {
    entry.stage = Stage::ended;
    return {.kind = ReadVerdict::Kind::whole};
  }
  if (bytes == 0) {
    // The file ends before it should. Opened anew it tells whether it was replaced; if it was not,
    // it has shrunk.
    if (std::exchange(entry.ended_early, true)) {
      return give_up(entry, 0, now);
    }
    entry.reopen = true;
    enqueue(entry);
    return {};
  }
  // A direct read goes on at a whole block, so what is behind the last one comes again.
  const std::uint64_t got = (entry.got + bytes) / request.alignment * request.alignment;
  if (got == entry.got) {
    return failed(entry, EAGAIN, now);
  }
  entry.got = got;
  entry.idle_tries = entry.failures = 0;
  entry.failing_since.reset();
  enqueue(entry);
  return {};
}

ReadVerdict Scheduler::failed(ScheduledRead& entry, int error, Moment now) {
  const ErrorRule& rule = rule_of(error);
  if (rule.remedy == Remedy::again && ++entry.idle_tries <= most_idle_tries) {
    enqueue(entry);
    return {};
  }
  TargetQueue& target = targets_.at(entry.request.target);
  ++target.errors;
  ++entry.failures;
  if (!entry.failing_since) {
    entry.failing_since = now;
  }
  if (rule.remedy == Remedy::give_up || now - *entry.failing_since >= limits_.retry_for) {
    return give_up(entry, error, now);
  }
  entry.reopen = rule.remedy == Remedy::reopen;
  if (rule.blames_target) {
    // Reads that were under way when the first one failed tell nothing new.
    if (target.failures == 0 || entry.started >= target.failed_at) {
      ++target.failures;
      target.failed_at = now;
      const auto key = static_cast<std::uint64_t>(entry.request.target);
      target.blocked_until =
          now + back_off(mix_bits(limits_.seed + golden_step * key), target.failures);
    }
    enqueue(entry);
    return {};
  }
  entry.stage = Stage::delayed;
  delayed_.emplace(now + back_off(mix_bits(limits_.seed) ^ entry.request.id, entry.failures),
                   entry.request.id);
  return {};
}

ReadVerdict Scheduler::give_up(ScheduledRead& entry, int error, Moment now) {
  entry.stage = Stage::ended;
  return {.kind = ReadVerdict::Kind::failed,
          .failure = {.request = entry.request,
                      .offset = entry.request.extent.offset + entry.got,
                      .error = error,
                      .attempts = entry.failures,
                      .lasted = now - entry.failing_since.value_or(now)}};
}

void Scheduler::again(std::uint64_t id) {
  const auto found = entries_.find(id);
  require(found != entries_.end() && found->second.stage == Stage::ended, "request ", id,
          " has not ended, so it cannot be read again");
  ScheduledRead& entry = found->second;
  entry.got = 0;
  entry.failures = entry.idle_tries = 0;
  entry.failing_since.reset();
  entry.ended_early = false;
  entry.reopen = true;
  enqueue(entry);
}

void Scheduler::release(std::uint64_t id) {
  const auto found = entries_.find(id);
  require(found != entries_.end() && found->second.stage != Stage::in_flight, "request ", id,
          " is under way or unknown, so it cannot be released");
  ScheduledRead& entry = found->second;
  const Request& request = entry.request;
  if (entry.stage == Stage::waiting) {
    waiting_.erase(place_in_queue(request));
  } else {
    used_bytes_ -= request.extent.bytes;
  }
  if (entry.stage == Stage::queued) {
    targets_.at(request.target).queue.erase(place_in_queue(request));
  }
  if (entry.stage == Stage::held) {
    std::erase(held_.at(request.extent.file), id);
  }
  if (entry.stage == Stage::delayed) {
    std::erase_if(delayed_, [&](const auto& one) { return one.second == id; });
  }
  entries_.erase(found);
  admit();
}

void Scheduler::hold(std::uint32_t file) { held_.try_emplace(file); }

void Scheduler::resume(std::uint32_t file) {
  const auto held = held_.extract(file);
  if (held.empty()) {
    return;
  }
  for (const std::uint64_t id : held.mapped()) {
    enqueue(entries_.at(id));
  }
}

std::vector<std::uint64_t> Scheduler::end_held(std::uint32_t file) {
  const auto held = held_.find(file);
  if (held == held_.end()) {
    return {};
  }
  for (const std::uint64_t id : held->second) {
    entries_.at(id).stage = Stage::ended;
  }
  // The file stays held: reads that find room later end in their turn.
  return std::exchange(held->second, {});
}

std::uint64_t Scheduler::held() const {
  std::uint64_t reads = 0;
  for (const auto& [file, ids] : held_) {
    reads += ids.size();
  }
  return reads;
}

std::optional<Moment> Scheduler::wakes_at() const {
  if (in_flight_ >= limits_.reads) {
    return std::nullopt;
  }
  std::optional<Moment> earliest;
  const auto add = [&](Moment moment) {
    earliest = earliest ? std::min(*earliest, moment) : moment;
  };
  if (!delayed_.empty()) {
    add(delayed_.begin()->first);
  }
  for (const auto& [number, target] : targets_) {
    if (!target.queue.empty() && target.failures > 0 && target.reads_in_flight == 0) {
      add(target.blocked_until);
    }
  }
  return earliest;
}

std::vector<HungRead> Scheduler::hung(Moment now) {
  std::vector<HungRead> hung;
  for (auto& [id, entry] : entries_) {
    const Moment lasts = now - entry.started;
    if (entry.stage == Stage::in_flight && lasts >= limits_.hung_after && !entry.told_hung) {
      entry.told_hung = true;
      hung.push_back({.request = entry.request, .lasts = lasts});
    }
  }
  std::ranges::sort(hung, {}, [](const HungRead& one) { return place_in_queue(one.request); });
  return hung;
}

std::optional<std::uint64_t> Scheduler::starved(std::uint64_t position) const {
  const bool nothing_moves =
      in_flight_ == 0 && delayed_.empty() && held() == 0 &&
      std::ranges::all_of(targets_, [](const auto& one) { return one.second.queue.empty(); });
  if (!nothing_moves || waiting_.empty() || waiting_.begin()->first > position) {
    return std::nullopt;
  }
  return waiting_.begin()->first;
}

bool Scheduler::takes_more() const {
  return waiting_.empty() &&
         (targets_.empty() ||
          std::ranges::any_of(targets_, [](const auto& one) { return one.second.queue.empty(); }));
}

std::vector<TargetLoad> Scheduler::targets() const {
  std::vector<TargetLoad> loads;
  for (const auto& [number, target] : targets_) {
    // As many as has_room() lets it have of the length of those under way.
    const auto fit = [&target = target](std::uint64_t bytes) {
      return static_cast<std::uint32_t>(std::min<std::uint64_t>(
          bytes * target.reads_in_flight / std::max<std::uint64_t>(target.bytes_in_flight, 1),
          std::numeric_limits<std::uint32_t>::max()));
    };
    const std::uint32_t few =
        std::min({fit(calls_in_flight * call_bytes), calls_in_flight, limits_.flow.most_reads});
    // Long reads come to the bound of bytes before the one of reads.
    const std::uint32_t most = target.bytes_in_flight == 0
                                   ? limits_.flow.most_reads
                                   : std::max(fit(limits_.target_bytes), target.reads_in_flight);
    loads.push_back({.target = number,
                     .reads_in_flight = target.reads_in_flight,
                     .cap = std::min(std::max(target.flow.cap(), few), most),
                     .queued = target.queue.size(),
                     .bytes = target.bytes,
                     .reads = target.reads,
                     .errors = target.errors,
                     .down = target.failures > 0});
  }
  return loads;
}

}  // namespace sprat::io
