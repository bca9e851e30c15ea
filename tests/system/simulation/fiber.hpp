// A call stack that can be left and entered again, on one thread.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

namespace sprat::simulation {

/// Not copyable, not movable. Destroyed at any time: what lies on its stack is then not unwound.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the body on until it leaves or ends. Not from within a fiber.
  void resume();
  /// Back to whoever resumed it. From within the body only.
  void leave();
  bool ended() const { return ended_; }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 20;  ///< Sparse.
  static void enter(unsigned high, unsigned low);
  void swap_exceptions();

  std::function<void()> body_;
  std::byte* stack_;
  ucontext_t mine_{}, caller_{};
  bool ended_ = false;
  /// What the C++ runtime keeps of exceptions under way: it belongs to a stack.
  std::array<std::byte, 16> exceptions_{};
  void* fake_stack_ = nullptr;          ///< The address sanitizer's.
  const void* caller_stack_ = nullptr;  ///< The same.
  std::size_t caller_stack_bytes_ = 0;  ///< The same.
};

}  // namespace sprat::simulation
