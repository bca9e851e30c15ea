#include "tests/system/simulation/fiber.hpp"

#include <cxxabi.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace sprat::simulation {

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::abort();
  }
  stack_ = static_cast<std::byte*>(memory);
  getcontext(&mine_);
  mine_.uc_stack.ss_sp = stack_;
  mine_.uc_stack.ss_size = stack_bytes;
  mine_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&mine_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() { munmap(stack_, stack_bytes); }

void Fiber::swap_exceptions() {
  std::array<std::byte, 16> theirs;
  void* globals = abi::__cxa_get_globals();
  std::memcpy(theirs.data(), globals, theirs.size());
  std::memcpy(globals, exceptions_.data(), theirs.size());
  exceptions_ = theirs;
}

void Fiber::resume() {
  swap_exceptions();
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_, stack_bytes);
#endif
  swapcontext(&caller_, &mine_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  swap_exceptions();
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ended_ ? nullptr : &fake_stack_, caller_stack_,
                                 caller_stack_bytes_);
#endif
  swapcontext(&mine_, &caller_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_stack_, &caller_stack_bytes_);
#endif
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
#endif
  self->body_();
  self->ended_ = true;
  self->leave();
}

}  // namespace sprat::simulation
