// Limits, clock, cores and launchers of this machine.
#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "cli/doctor/checks.hpp"

namespace sprat::cli {
namespace {

using Level = Finding::Level;

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

/// This process's value of a cgroup file, version 2's; empty if there is no limit to be seen.
std::string cgroup_value(const char* file) {
  std::ifstream groups("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(groups, line)) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  // In a container the group's own files lie at the top.
  const std::string own = first_line("/sys/fs/cgroup" + path + "/" + file);
  return own.empty() ? first_line(std::string("/sys/fs/cgroup/") + file) : own;
}

rlim_t soft_limit(decltype(RLIMIT_NOFILE) which) {
  rlimit limit{};
  return getrlimit(which, &limit) == 0 ? limit.rlim_cur : 0;
}

std::string output_of(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command, "r"), pclose);
  std::array<char, 256> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
  std::string text(line.data());
  text.erase(text.find_last_not_of("\r\n") + 1);
  return text;
}

}  // namespace

const char* name(Finding::Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::warn:
      return "warn";
    case Level::fail:
      return "fail";
  }
  return "?";
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 10'240 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, units[unit]);
}

Finding check_memory_limit() {
  constexpr std::uint64_t little = std::uint64_t{1} << 30;
  const auto limit = number(cgroup_value("memory.max"));
  if (!limit) return {"memory limit", Level::ok, "none from a cgroup"};
  Finding finding{"memory limit", Level::ok,
                  bytes_text(*limit) + " (cgroup); shared memory counts too"};
  if (*limit < little) {
    finding.level = Level::warn;
    finding.remedy = "give the container more memory, as in docker run --memory 8g";
  }
  return finding;
}

Finding check_locked_memory(bool needed) {
  const rlim_t limit = soft_limit(RLIMIT_MEMLOCK);
  Finding finding{"locked memory", Level::ok,
                  "ulimit -l is " + (limit == RLIM_INFINITY ? "unlimited" : bytes_text(limit))};
  if (limit == RLIM_INFINITY) return finding;
  if (!needed) {
    finding.found += "; only efa would need more";
    return finding;
  }
  finding.level = Level::warn;
  finding.remedy = "ulimit -l unlimited (docker run --ulimit memlock=-1): efa registers memory";
  return finding;
}

Finding check_open_files() {
  constexpr rlim_t enough = 1024;  // rank 0 keeps one a rank, and one a peer of its host
  const rlim_t limit = soft_limit(RLIMIT_NOFILE);
  const std::string found = fmt::format("ulimit -n is {}", limit);
  if (limit >= enough) return {"open files", Level::ok, found};
  return {"open files", Level::warn, found + "; rank 0 keeps a connection to every rank",
          "ulimit -n 65536"};
}

Finding check_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  std::istringstream quota(cgroup_value("cpu.max"));  // "200000 100000", or "max 100000"
  std::string allowed, period;
  quota >> allowed >> period;
  const auto share = number(allowed), whole = number(period);
  if (share && whole && *whole > 0 && *share < *whole * static_cast<std::uint64_t>(cores)) {
    const double quota_cores = static_cast<double>(*share) / static_cast<double>(*whole);
    return {
        "cores", Level::warn,
        fmt::format("{} to run on, but a cgroup quota of {:.1f}: ranks that wait are put to sleep",
                    cores, quota_cores),
        fmt::format("run at most {} ranks here, or lift the quota (docker run --cpus {})",
                    std::max(1, static_cast<int>(quota_cores)), cores)};
  }
  return {"cores", Level::ok,
          fmt::format("{} to run on; more ranks than that wait without spinning", cores)};
}

Finding check_clock() {
  using Clock = std::chrono::steady_clock;
  constexpr int calls = 20'000;
  const auto begin = Clock::now();
  auto end = begin;
  for (int call = 0; call < calls; ++call) end = Clock::now();
  const double ns = std::chrono::duration<double, std::nano>(end - begin).count() / calls;
  const std::string source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::string found =
      fmt::format("{}, {:.0f} ns a look", source.empty() ? "unknown source" : source, ns);
  constexpr double slow_ns = 300;  // a system call, rather than a register
  if (ns < slow_ns) return {"clock", Level::ok, found};
  return {"clock", Level::warn, found + ": deadlines and short waits cost more than they should",
          "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"};
}

Finding check_mpirun() {
  const std::string version = output_of("mpirun --version 2>/dev/null");
  if (version.empty()) {
    return {"mpirun", Level::warn, "not found: sprat launch needs it; torchrun and srun do not",
            "apt-get install openmpi-bin"};
  }
#ifdef SPRAT_PMIX
  return {"mpirun", Level::ok, version + "; this build speaks PMIx"};
#else
  return {"mpirun", Level::warn, version + ", but this build does not speak PMIx",
          "apt-get install libpmix-dev, and build again"};
#endif
}

}  // namespace sprat::cli
