// The deadlines that a group's operations get.
#pragma once

#include <chrono>
#include <mutex>

namespace sprat::pytorch {

/// The group's usual timeout, and time that is added to it for a while. Any thread.
class Timeouts final {
 public:
  using Milliseconds = std::chrono::milliseconds;

  explicit Timeouts(Milliseconds usual) : usual_(usual) {}
  Milliseconds usual() const;
  void set_usual(Milliseconds usual);
  /// Operations that start from here on get `extra` more, until the first of them has ended.
  void extend(Milliseconds extra);

  /// What one operation gets, and how much of the extension ends with it.
  struct Granted {
    Milliseconds timeout{}, extra{};
  };
  /// For an operation that asks for a timeout of its own, or for the usual one
  /// (c10d::kUnsetTimeout).
  Granted grant(Milliseconds asked);
  /// The operation has ended.
  void give_back(const Granted& granted);

 private:
  mutable std::mutex mutex_;  ///< Guards the rest.
  Milliseconds usual_;
  Milliseconds extension_{};  ///< Granted to whatever starts now.
  Milliseconds owned_{};      ///< Of it, what operations under way take with them at their end.
};

}  // namespace sprat::pytorch
