// What /proc says of a process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "cli/top/look.hpp"

namespace sprat::cli {

/// Nothing if it has ended.
std::optional<ProcessUse> process_use(pid_t pid);

/// What a line of /proc/PID/stat holds, in ticks of sysconf(_SC_CLK_TCK) and in pages; started:
/// since the host was.
struct ProcessStat {
  char state = '?';
  std::uint64_t cpu_ticks = 0, started_ticks = 0, resident_pages = 0;
};
/// Nothing if it is no such line. The program's name in it may hold blanks and brackets.
std::optional<ProcessStat> parse_stat(std::string_view line);
/// The words of /proc/PID/cmdline, which each end in a zero, as one printable line.
std::string command_line(std::string_view words);

}  // namespace sprat::cli
