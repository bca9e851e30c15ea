// How much memory the machine and the control groups of this process leave it. Who touches more is
// ended by the kernel without a word.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace sprat::comm {

struct MemoryRoom {
  std::size_t bytes = 0;  ///< Not taken yet, or by files that the kernel can drop.
  std::size_t limit = 0;
  std::string limit_file = {};  ///< Which sets the limit.
};

/// Of the control group that leaves least, among this process's and those above it; nothing where
/// none has a limit that can be read. Other processes of the group may take it meanwhile.
std::optional<MemoryRoom> memory_room(const std::string& root = "/sys/fs/cgroup",
                                      const std::string& membership = "/proc/self/cgroup");

/// Throws Error{unavailable} with the reason if there is no room for so many bytes more, which are
/// all touched soon; `what` says of what. Control groups are asked where there is no swap, which
/// they may take beyond their limits.
void need_memory(std::size_t bytes, const char* what);

}  // namespace sprat::comm
