#include "cli/top/processes.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <ctime>
#include <fstream>
#include <iterator>

namespace sprat::cli {
namespace {

/// Empty if it cannot be read.
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string user_name(uid_t user) {
  std::array<char, 4096> room{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, room.data(), room.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return std::to_string(user);
}

/// Of the clock by which /proc tells when a process was started: since the host was, asleep or not.
double seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

std::optional<ProcessStat> parse_stat(std::string_view line) {
  // The name stands in brackets and may have some in it, so the last one ends it. From there on
  // fields are divided by single blanks: state is the third, utime and stime the 14th and 15th,
  // starttime the 22nd, rss the 24th (proc(5)).
  const std::size_t name_end = line.rfind(") ");
  if (name_end == std::string_view::npos) {
    return std::nullopt;
  }
  constexpr int state_field = 3, user_field = 14, system_field = 15, start_field = 22,
                resident_field = 24;
  ProcessStat stat;
  std::string_view rest = line.substr(name_end + 2);
  for (int field = state_field; field <= resident_field; ++field) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (word.empty()) {
      return std::nullopt;
    }
    std::uint64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    if (field == state_field) {
      stat.state = word.front();
    } else if (field == user_field || field == system_field) {
      stat.cpu_ticks += value;
    } else if (field == start_field) {
      stat.started_ticks = value;
    } else if (field == resident_field) {
      stat.resident_pages = value;
    }
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return stat;
}

std::string command_line(std::string_view words) {
  while (!words.empty() && words.back() == '\0') {
    words.remove_suffix(1);
  }
  std::string line(words);
  for (char& c : line) {
    // Words come from another process: what a terminal obeys becomes a question mark.
    c = c == '\0' || c == '\n' ? ' ' : c < ' ' || c > '~' ? '?' : c;
  }
  return line.empty() ? "?" : line;
}

std::optional<ProcessUse> process_use(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::optional<ProcessStat> stat = parse_stat(contents(folder + "/stat"));
  struct stat owner {};
  if (!stat || ::stat(folder.c_str(), &owner) != 0) {
    return std::nullopt;
  }
  static const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return ProcessUse{
      .command = command_line(contents(folder + "/cmdline")),
      .user = owner.st_uid == geteuid() ? "" : user_name(owner.st_uid),
      .state = stat->state,
      .cpu_seconds = static_cast<double>(stat->cpu_ticks) / ticks,
      .lived = seconds_since_boot() - static_cast<double>(stat->started_ticks) / ticks,
      .resident_bytes = stat->resident_pages * page_bytes};
}

}  // namespace sprat::cli
