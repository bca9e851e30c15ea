// How much memory the control groups of this process leave it.
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

}  // namespace sprat::comm
