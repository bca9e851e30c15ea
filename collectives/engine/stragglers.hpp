// When to say that an operation waits long, for whom, and that they came after all.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace sprat::collectives {

/// Of one operation at a time. Reads no clock and says nothing itself.
class Stragglers {
 public:
  /// After how long to warn; 0: never.
  explicit Stragglers(std::chrono::milliseconds after) : after_(after) {}

  /// True once for an operation: it has waited long enough for `late`, and that is to be said.
  bool warn(std::chrono::nanoseconds waited, const std::vector<int>& late) {
    if (warned_ || after_.count() == 0 || waited < after_) {
      return false;
    }
    warned_ = true;
    awaited_ = late;
    return true;
  }
  bool warned() const { return warned_; }
  /// Those that were warned of and are not late any more: each once.
  std::vector<int> came(const std::vector<int>& late) {
    std::vector<int> ranks;
    std::erase_if(awaited_, [&](int rank) {
      const bool here = std::ranges::find(late, rank) == late.end();
      if (here) {
        ranks.push_back(rank);
      }
      return here;
    });
    return ranks;
  }
  /// The operation is over.
  void forget() {
    warned_ = false;
    awaited_.clear();
  }

 private:
  std::chrono::milliseconds after_;
  bool warned_ = false;
  std::vector<int> awaited_;
};

}  // namespace sprat::collectives
