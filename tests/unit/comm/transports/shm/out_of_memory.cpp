#include "tests/unit/comm/transports/shm/out_of_memory.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local bool nothing_left = false;
thread_local sprat::comm::FailingAllocation* failing = nullptr;

bool fails() { return nothing_left || (failing != nullptr && failing->fails_now()); }

}  // namespace

// The whole program allocates by these: the standard lets a program replace them, and there is no
// other way to have containers fail without exhausting the machine.
void* operator new(std::size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
// std::stable_partition allocates by this one, and frees by the ones below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sprat::comm {

OutOfMemory::OutOfMemory() { nothing_left = true; }
OutOfMemory::~OutOfMemory() { nothing_left = false; }

FailingAllocation::FailingAllocation(int given_before) : given_before_(given_before) {
  failing = this;
}
FailingAllocation::~FailingAllocation() { failing = nullptr; }

}  // namespace sprat::comm
