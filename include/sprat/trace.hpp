// Timelines: what a rank did when, beside what the library notes itself (docs/tracing.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "sprat/export.hpp"

namespace sprat {

/// What an event is shown among, and counted as by `sprat trace summary`.
enum class TraceRow : std::uint8_t {
  computes,     ///< Forwards, backwards, updates: what holds the rank's processor.
  waits,        ///< In which it stood still for other ranks, also amid what it computes,
  stalls,       ///< and for activations on their way from or to a tier.
  messages,     ///< Between two ranks.
  gathers,      ///< Of a unit's parameters.
  reduces,      ///< Of a unit's gradients.
  collectives,  ///< Each call, on whichever communicator.
  tier,         ///< Activations that move.
  loader,       ///< The program asks for its next batch.
  checkpoint,
  steps,  ///< Of training, each as a whole.
};
SPRAT_API const char* name(TraceRow row) noexcept;

struct TraceEvent {
  TraceRow row{};
  std::string_view name = {};  ///< Its first 31 bytes are kept, of `algorithm` 15, of `place` 23.
  std::chrono::steady_clock::time_point start = {}, end = {};
  std::uint64_t bytes = 0;
  std::int64_t sequence = -1;       ///< Of a call on its communicator; below 0: none.
  std::string_view algorithm = {};  ///< How,
  std::string_view place = {};      ///< and on which communicator.
  std::int32_t stage = -1, microbatch = -1;
  /// Not 0: an arrow leads from the event that sends to the one that receives, which have the same
  /// number and nobody else has.
  std::uint64_t flow = 0;
  bool receives = false;
};

/// Keeps a rank's events in memory that was allocated when the rank joined; the oldest go first.
class SPRAT_API Tracer {
 public:
  virtual ~Tracer();
  /// Any thread. Never waits, never allocates.
  virtual void add(const TraceEvent& event) noexcept = 0;
  /// Not 0, and no other rank of the job ever gets it.
  virtual std::uint64_t unique() noexcept = 0;
};

/// One event, from here to the end of its scope. `name` lives as long.
class TraceSpan {
 public:
  /// `tracer` may be null: then nothing happens.
  TraceSpan(Tracer* tracer, TraceRow row, std::string_view name) noexcept
      : tracer_(tracer), row_(row), name_(name) {
    if (tracer_ != nullptr) {
      start_ = std::chrono::steady_clock::now();
    }
  }
  ~TraceSpan() {
    if (tracer_ != nullptr) {
      tracer_->add(
          {.row = row_, .name = name_, .start = start_, .end = std::chrono::steady_clock::now()});
    }
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Tracer* tracer_;
  TraceRow row_;
  std::string_view name_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace sprat
