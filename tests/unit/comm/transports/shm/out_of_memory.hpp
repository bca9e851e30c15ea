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

}  // namespace sprat::comm
