// Which read starts next, and what becomes of those that end: caps by target, one budget of bytes,
// retries.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/reading/request.hpp"
#include "io/reading/retries.hpp"
#include "io/reading/target_flow.hpp"

namespace sprat::io {

struct SchedulerLimits {
  /// Of all requests that were started and are not released.
  std::uint64_t budget_bytes = std::uint64_t{256} << 20;
  std::uint32_t reads = 64;  ///< Under way at most, of all targets: what the reader takes.
  /// Under way at one target, but always one read. Of Lustre: calls in flight times their size.
  std::uint64_t target_bytes = std::uint64_t{32} << 20;
  FlowLimits flow = {};
  Moment retry_for = std::chrono::seconds(60);   ///< retry_time() says it by file system.
  Moment hung_after = std::chrono::seconds(30);  ///< A read that takes longer is told by hung().
  std::uint64_t seed = 0;                        ///< Of back-offs; each host has another.
};

/// A call to make: these bytes of the file, to this place in the request's memory.
struct ReadStart {
  std::uint64_t id = 0;
  Extent extent;
  std::uint64_t into = 0;
  Target target = 0;
  bool reopen = false;  ///< The file is opened by its path and looked at again first.
};

struct ReadVerdict {
  enum class Kind : std::uint8_t {
    whole,      ///< All bytes are there. They count against the budget until release().
    continues,  ///< next() tells when and how.
    failed,     ///< For good: `failure` says why. release() it.
  };
  Kind kind = Kind::continues;
  ReadFailure failure = {};
};

/// What a target has now, and has done in all.
struct TargetLoad {
  Target target = 0;
  std::uint32_t reads_in_flight = 0, cap = 0;
  std::uint64_t queued = 0;  ///< Requests that have room in the budget and wait.
  std::uint64_t bytes = 0, reads = 0, errors = 0;  ///< Ended calls; errors are among the reads.
  bool down = false;                               ///< Its last read failed by its fault.
};

/// What a scheduler knows of a request.
struct ScheduledRead {
  enum class Stage : std::uint8_t { waiting, queued, held, delayed, in_flight, ended };
  Request request;
  Stage stage = Stage::waiting;
  std::uint64_t got = 0;  ///< Bytes, from the beginning on.
  std::uint32_t failures = 0;
  std::uint32_t idle_tries = 0;  ///< At once, in a row, without a byte.
  std::optional<Moment> failing_since = {};
  Moment started{};
  bool reopen = false, told_hung = false, ended_early = false;

  std::uint64_t rest() const { return request.extent.bytes - got; }
};

/// A state machine without I/O, clock or threads; one thread at a time.
///
/// Room in the budget is given in the order of dues, and the earliest request that has room is
/// started among targets that have spare reads. So whoever takes samples in order and releases what
/// no later sample wants never waits in vain, if the budget is ReadPlanner::most_needed_bytes();
/// else starved() tells.
class Scheduler final {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  /// Throws Error{invalid_argument} if one is larger than the budget, or its id is known.
  void add(std::span<const Request> requests);
  /// A sample before those that it was asked for wants it, too. Later dues are none.
  void bring_forward(std::uint64_t id, std::uint64_t due);
  /// Nothing: until done(), release() or wakes_at() there is nothing to start.
  std::optional<ReadStart> next(Moment now);
  /// The call that next() told has brought so many bytes, or errno's error.
  ReadVerdict done(std::uint64_t id, std::uint64_t bytes, int error, Moment now);
  /// A whole request's bytes are not those of the file: they are read once more from the
  /// beginning, the file opened anew.
  void again(std::uint64_t id);
  /// Its memory is free, or it is not wanted any more. Not while it is under way.
  void release(std::uint64_t id);

  /// The file's bytes are not there yet: reads that find room from now on do not start until
  /// resume(). They take that room in their turn all the same, so that whoever takes samples in
  /// order does not wait in vain when the file is there.
  void hold(std::uint32_t file);
  void resume(std::uint32_t file);
  /// The held file will not be there: its reads that have room end. release() each of those ids.
  std::vector<std::uint64_t> end_held(std::uint32_t file);
  /// Reads that have room and are held.
  std::uint64_t held() const;

  /// When next() may have something though nothing ends before.
  std::optional<Moment> wakes_at() const;
  /// Reads under way for longer than hung_after, each told once. Ask once a second.
  std::vector<HungRead> hung(Moment now);
  /// Nothing is under way, and what sample `position` waits for finds no room in the budget: the
  /// due of the request that is next in line for it.
  std::optional<std::uint64_t> starved(std::uint64_t position) const;
  /// What is due at `position` at the latest gets its room now; the budget is exceeded until as
  /// much is released. For what is due before that which has the room, and so is never released.
  void exceed_budget(std::uint64_t position);

  /// Some target has no request in line: one more for it would start soon.
  bool takes_more() const;

  std::uint64_t budget_used() const noexcept { return used_bytes_; }
  std::uint32_t in_flight() const noexcept { return in_flight_; }
  /// Requests that wait for room in the budget.
  std::uint64_t waiting() const noexcept { return waiting_.size(); }
  std::vector<TargetLoad> targets() const;

 private:
  /// The earliest first; ids break ties.
  using Queue = std::set<std::pair<std::uint64_t, std::uint64_t>>;
  using Stage = ScheduledRead::Stage;
  struct TargetQueue {
    explicit TargetQueue(const FlowLimits& limits) : flow(limits) {}
    TargetFlow flow;
    Queue queue;
    std::uint32_t reads_in_flight = 0;
    std::uint64_t bytes_in_flight = 0;
    bool held_back = false;      // since the last read ended
    std::uint32_t failures = 0;  // in a row
    Moment blocked_until{}, failed_at{};
    std::uint64_t bytes = 0, reads = 0, errors = 0;
  };

  void admit();
  void admit_next();
  void enqueue(ScheduledRead& entry);
  bool has_room(const TargetQueue& target, std::uint64_t bytes, Moment now) const;
  ReadStart start(TargetQueue& target, Moment now);
  ReadVerdict brought(ScheduledRead& entry, std::uint64_t bytes, Moment now);
  ReadVerdict failed(ScheduledRead& entry, int error, Moment now);
  ReadVerdict give_up(ScheduledRead& entry, int error, Moment now);

  SchedulerLimits limits_;
  std::unordered_map<std::uint64_t, ScheduledRead> entries_;
  Queue waiting_;                                                       // for room in the budget
  std::set<std::pair<Moment, std::uint64_t>> delayed_;                  // until when
  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> held_;  // reads by file
  std::map<Target, TargetQueue> targets_;
  std::uint64_t used_bytes_ = 0;
  std::uint32_t in_flight_ = 0;
};

}  // namespace sprat::io
