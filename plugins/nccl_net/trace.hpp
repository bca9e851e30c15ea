// What NCCL does, as events in bounded memory, and as a file that chrome://tracing and Perfetto
// show.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sprat::nccl_net {

/// NCCL's bits of events that are kept.
enum class TracedKind : std::uint64_t { coll = 1u << 1, p2p = 1u << 2, proxy_op = 1u << 3 };
inline constexpr std::uint64_t traced_kinds = static_cast<std::uint64_t>(TracedKind::coll) |
                                              static_cast<std::uint64_t>(TracedKind::p2p) |
                                              static_cast<std::uint64_t>(TracedKind::proxy_op);

/// One event as it begins. Texts may be null, and are copied.
struct TracedFacts {
  TracedKind kind = TracedKind::coll;
  int rank = 0;
  const char* function = nullptr;  ///< "AllReduce"; a proxy operation has that of its parent.
  const char* data_type = nullptr;
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  std::size_t count = 0;  ///< Elements; of a proxy operation, steps.
  int peer = -1;
  int channel = -1;
  bool sends = false;
};

/// Any thread.
class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Room for so many events; later ones are only counted.
  explicit Trace(std::size_t most_events);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  class Event;
  /// Null if there is no room. `parent` may be null, or an event of this trace.
  Event* begin(const TracedFacts& facts, const Event* parent);
  /// Once for each event.
  static void end(Event& event);
  /// Whether it is an event of this trace: NCCL hands on parents of other processes too.
  bool has(const void* event) const;
  /// Chrome's trace format. Events that have not ended end now, and say so. Nobody begins or ends
  /// any meanwhile.
  std::string as_json(int process) const;
  std::size_t dropped() const;

 private:
  const Time started_;
  const std::size_t room_;
  std::unique_ptr<Event[]> events_;
  std::atomic<std::size_t> begun_{0};  ///< More than room_ once events are dropped.
};

}  // namespace sprat::nccl_net
