// What fork() leaves in a child: objects that are its parent's.
//
// A child shares its parent's sockets, mappings and locks, but has none of its threads. So in a
// child objects made before the fork do nothing, destructors included, and descriptors that would
// hide the parent's death from its peers are closed. Objects made after the fork are its own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

namespace sprat::comm {

/// How many forks lie between this process and the first one that asked. Any thread.
std::uint32_t fork_generation() noexcept;

/// Remembers the process that made it.
class ProcessMark {
 public:
  /// False in a child forked later.
  bool here() const noexcept { return generation_ == fork_generation(); }

 private:
  std::uint32_t generation_ = fork_generation();
};

/// What `open` gives, a descriptor or -1. Children forked meanwhile, or while it is open, close
/// their copy. `open` makes one system call. Any thread.
int open_here_only(const std::function<int()>& open);
/// The same for a call that gives two at once; {-1, -1} if it fails.
std::array<int, 2> open_two_here_only(const std::function<std::array<int, 2>()>& open);
/// Closes such a descriptor. Any thread.
void close_and_forget(int descriptor) noexcept;

}  // namespace sprat::comm
