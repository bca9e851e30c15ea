// A descriptor of the launcher is sound where other means are not: PR_SET_PDEATHSIG tells of the
// end of a thread and only of the direct parent, and a parent's number may be given to another
// process.
#include "cli/launcher.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "comm/base/config.hpp"

namespace sprat::cli {
namespace {

/// What a launcher tells each of its processes, and has not in its own environment.
constexpr std::array<std::array<const char*, 2>, 2> marks = {
    {{"PMIX_NAMESPACE", "PMIX_RANK"}, {"TORCHELASTIC_RUN_ID", "RANK"}}};

/// This process's own marks, as NAME=VALUE; none if it is no rank of theirs.
std::vector<std::string> own_marks() {
  for (const auto& names : marks) {
    std::vector<std::string> found;
    for (const char* name : names) {
      if (const char* value = environment(name); value != nullptr) {
        found.push_back(std::string(name) + "=" + value);
      }
    }
    if (found.size() == names.size()) {
      return found;
    }
  }
  return {};
}

std::string file_of(pid_t process, const char* name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Whether a process began with the same marks. One that cannot be read is another user's.
bool has_marks(pid_t process, const std::vector<std::string>& wanted) {
  const std::string variables = '\0' + file_of(process, "environ");
  return std::ranges::all_of(wanted, [&](const std::string& mark) {
    return variables.find('\0' + mark + '\0') != std::string::npos;
  });
}

/// 0 if the process has ended.
pid_t parent_of(pid_t process) {
  const std::string line = file_of(process, "stat");  // "1 (any name) S 0 ..."
  const auto name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 4 > line.size()
             ? 0
             : static_cast<pid_t>(std::strtol(line.c_str() + name_end + 4, nullptr, 10));
}

}  // namespace

pid_t launcher() {
  const std::vector<std::string> wanted = own_marks();
  if (wanted.empty()) {
    return 0;
  }
  pid_t process = getppid();
  while (process > 1 && has_marks(process, wanted)) {
    process = parent_of(process);
  }
  return process > 1 ? process : 0;
}

LauncherWatch::LauncherWatch() {
  const pid_t process = launcher();
  if (process == 0) {
    return;
  }
  descriptor_ = comm::OwnedDescriptor(
      static_cast<int>(syscall(SYS_pidfd_open, process, 0)));  // close-on-exec
  if (launcher() != process) {  // it ended meanwhile: whose number is it now?
    descriptor_.close();
  }
}

}  // namespace sprat::cli
