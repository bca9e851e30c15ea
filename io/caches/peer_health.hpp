// Whether a host is worth asking. Pure: the time is an argument.
#pragma once

#include <chrono>

namespace sprat::io {

/// After three failures in a row a host is left alone, for a second, and twice as long each time it
/// fails anew, at most a minute. One thread at a time.
class PeerHealth {
 public:
  using Time = std::chrono::steady_clock::time_point;

  bool may_be_asked(Time now) const noexcept { return now >= rests_until_; }
  /// It answered, whatever it said.
  void answered() noexcept;
  /// It did not answer in time, could not be reached, or answered what nobody had asked.
  void failed(Time now) noexcept;

 private:
  int failures_ = 0;
  std::chrono::milliseconds rest_{0};
  Time rests_until_{};
};

}  // namespace sprat::io
