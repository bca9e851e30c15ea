#include "plugins/torch/native/observing/timeouts.hpp"

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace sprat::pytorch {

Timeouts::Milliseconds Timeouts::usual() const {
  const std::lock_guard lock(mutex_);
  return usual_;
}

void Timeouts::set_usual(Milliseconds usual) {
  const std::lock_guard lock(mutex_);
  usual_ = usual;
}

void Timeouts::extend(Milliseconds extra) {
  const std::lock_guard lock(mutex_);
  extension_ += extra;
}

Timeouts::Granted Timeouts::grant(Milliseconds asked) {
  const std::lock_guard lock(mutex_);
  // The first operation after extend() owns the extension: several may start before it ends, all of
  // them later, and each of them gets it. NCCL's backend counts the same way.
  const Granted granted{.timeout = (asked == c10d::kUnsetTimeout ? usual_ : asked) + extension_,
                        .extra = extension_ - owned_};
  owned_ = extension_;
  return granted;
}

void Timeouts::give_back(const Granted& granted) {
  if (granted.extra == Milliseconds::zero()) {
    return;  // nearly always, and then without the lock
  }
  const std::lock_guard lock(mutex_);
  extension_ -= granted.extra;
  owned_ -= granted.extra;
}

}  // namespace sprat::pytorch
