// How many threads were busy in the last second, at any time of it. Pure: the time is an argument.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace sprat::io {

/// Times ascend. One thread at a time.
class BusyHistory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// From `now` on so many more are busy.
  void change(Time now, int by) noexcept;
  /// How many were, on an average of the time from `begin` to `now`, as far back as is remembered.
  double mean(Time begin, Time now) noexcept;

 private:
  struct Mark {
    Time at{};
    double busy_seconds = 0;  // of all threads together, up to then
  };
  void go_to(Time now) noexcept;

  int busy_ = 0;
  Mark last_;
  // One a millisecond: for a second they reach back at least.
  std::array<Mark, 1024> marks_{};
  std::size_t marked_ = 0;
};

}  // namespace sprat::io
