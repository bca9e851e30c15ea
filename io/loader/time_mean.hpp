// The mean over time of a value that is told whenever it changes.
#pragma once

#include <algorithm>
#include <chrono>

namespace sprat::io {

/// One thread at a time.
class TimeMean {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit TimeMean(Time begin) : since_(begin), begin_(begin) {}

  /// From `now` on the value is this one.
  void becomes(double value, Time now) {
    pass(now);
    value_ = value;
  }
  /// The mean since the last take(), or the beginning.
  double take(Time now) {
    pass(now);
    const double length = std::max(seconds(now - begin_), 1e-9);
    const double mean = sum_ / length;
    begin_ = now;
    sum_ = 0;
    return mean;
  }

 private:
  static double seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  }
  void pass(Time now) {
    sum_ += value_ * seconds(now - since_);
    since_ = now;
  }

  double value_ = 0, sum_ = 0;
  Time since_, begin_;
};

}  // namespace sprat::io
