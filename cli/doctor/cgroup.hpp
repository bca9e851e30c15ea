// Where the control groups of a process keep their limits, in either version of the kernel's
// interface.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::cli {

/// Folders of the groups that hold a process to what `controller` limits.
struct ControlGroups {
  int version = 2;
  std::vector<std::string> folders;  ///< The process's own first, then those around it.
};
/// Pure. `membership` and `mounts` are the texts of /proc/self/cgroup and /proc/self/mountinfo.
/// Version 1 where that has the controller, else version 2; no folders where there is neither.
ControlGroups control_groups(std::string_view controller, const std::string& membership,
                             const std::string& mounts);
/// This process's.
ControlGroups own_control_groups(std::string_view controller);

/// The least bytes that one of these groups of "memory" allows; null if there is no limit.
std::optional<std::uint64_t> memory_limit(const ControlGroups& groups);

}  // namespace sprat::cli
