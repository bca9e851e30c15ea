// A thread to which the allocator gives nothing for a while.
#pragma once

namespace sprat::comm {

/// While one lives, `new` throws std::bad_alloc in the thread that made it, and in no other.
class OutOfMemory {
 public:
  OutOfMemory();
  ~OutOfMemory();
  OutOfMemory(const OutOfMemory&) = delete;
  OutOfMemory& operator=(const OutOfMemory&) = delete;
};

/// While one lives, `new` throws std::bad_alloc once in the thread that made it: after so many that
/// it gave.
class FailingAllocation {
 public:
  explicit FailingAllocation(int given_before);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Allocations of the thread since. Other threads may ask that it has started, while it waits.
  int count() const { return count_; }
  /// Of `new`, once each time.
  bool fails_now() { return count_++ == given_before_; }

 private:
  const int given_before_;
  int count_ = 0;
};

}  // namespace sprat::comm
