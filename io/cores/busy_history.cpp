// A ring of running sums: the mean of any past stretch is a difference of two of them.
#include "io/cores/busy_history.hpp"

#include <algorithm>

namespace sprat::io {
namespace {

constexpr std::chrono::milliseconds between_marks{1};

double seconds_between(BusyHistory::Time begin, BusyHistory::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void BusyHistory::change(Time now, int by) noexcept {
  go_to(now);
  busy_ += by;
}

/// Brings the sum up to `now`, and remembers it now and then.
void BusyHistory::go_to(Time now) noexcept {
  if (marked_ > 0) {
    last_.busy_seconds += busy_ * seconds_between(last_.at, now);
  }
  last_.at = now;
  if (marked_ == 0 || now - marks_[(marked_ - 1) % marks_.size()].at >= between_marks) {
    marks_[marked_++ % marks_.size()] = last_;
  }
}

double BusyHistory::mean(Time begin, Time now) noexcept {
  go_to(now);
  const std::size_t oldest = marked_ - std::min(marked_, marks_.size());
  Mark before = marks_[oldest % marks_.size()], after = last_;
  for (std::size_t index = marked_; index > oldest; --index) {
    const Mark& one = marks_[(index - 1) % marks_.size()];
    if (one.at <= begin) {
      before = one;
      break;
    }
    after = one;
  }
  // Between two marks the threads are taken for evenly busy.
  double at_begin = before.busy_seconds;
  if (begin > before.at && after.at > before.at) {
    at_begin += (after.busy_seconds - before.busy_seconds) * seconds_between(before.at, begin) /
                seconds_between(before.at, after.at);
  }
  const double length = seconds_between(std::max(begin, before.at), now);
  return length > 0 ? (last_.busy_seconds - at_begin) / length : busy_;
}

}  // namespace sprat::io
