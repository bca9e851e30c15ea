// Buffers of a program, and when each of them is needed: layers' parameters, gradients,
// activations, messages, staging, all the same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sprat::memory {

/// Moments at which a buffer holds something: from <= t < to. What a moment is, the plan says that
/// counts them: a visit, an action of a schedule.
struct Life {
  std::size_t from = 0, to = 0;
  friend bool operator==(const Life&, const Life&) = default;
};
/// In order, without overlap.
using Lives = std::vector<Life>;

struct Buffer {
  std::string name;  ///< What it is, for people: "parameters of h.3".
  std::size_t bytes = 0;
  Lives lives;  ///< None: it is never there.
};

bool overlap(const Lives& a, const Lives& b);

/// Notes lives as a program is rehearsed.
class LifeRecord {
 public:
  explicit LifeRecord(std::size_t buffers) : lives_(buffers) {}
  /// One moment, at which those of `alive`, by buffer, are alive; there may be more than before.
  void meet(const std::vector<bool>& alive);
  /// By buffer.
  const std::vector<Lives>& lives() const { return lives_; }

 private:
  std::vector<Lives> lives_;
  std::size_t moment_ = 0;
};

}  // namespace sprat::memory
