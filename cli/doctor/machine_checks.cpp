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

#include "cli/doctor/cgroup.hpp"
#include "cli/doctor/checks.hpp"

namespace sprat::cli {
namespace {

using Level = Finding::Level;

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) {
    return std::nullopt;
  }
  return value;
}

/// Cores' worth of time that the groups allow, the least; null if they allow all.
std::optional<double> core_quota() {
  const ControlGroups groups = own_control_groups("cpu");
  std::optional<double> least;
  for (const std::string& folder : groups.folders) {
    const std::string both = groups.version == 1 ? first_line(folder + "/cpu.cfs_quota_us") + " " +
                                                       first_line(folder + "/cpu.cfs_period_us")
                                                 : first_line(folder + "/cpu.max");
    std::istringstream words(both);  // "200000 100000"; no limit is "-1" or "max"
    std::string allowed, period;
    words >> allowed >> period;
    const auto share = number(allowed), whole = number(period);
    if (!share || !whole || *whole == 0) {
      continue;
    }
    const double cores = static_cast<double>(*share) / static_cast<double>(*whole);
    least = std::min(cores, least.value_or(cores));
  }
  return least;
}

rlim_t soft_limit(decltype(RLIMIT_NOFILE) which) {
  rlimit limit{};
  return getrlimit(which, &limit) == 0 ? limit.rlim_cur : 0;
}

std::string output_of(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command, "r"), pclose);
  std::array<char, 256> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) {
    return "";
  }
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
  // From ten of the next unit on: the division rounds down, and 1.9 GiB would read as 1 GiB.
  while (bytes >= 10'240 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, units[unit]);
}

Finding check_memory_limit() {
  constexpr std::uint64_t little = std::uint64_t{1} << 30;
  const auto limit = memory_limit(own_control_groups("memory"));
  if (!limit) {
    return {"memory limit", Level::ok, "none from a cgroup"};
  }
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
  if (limit == RLIM_INFINITY) {
    return finding;
  }
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
  if (limit >= enough) {
    return {"open files", Level::ok, found};
  }
  return {"open files", Level::warn, found + "; rank 0 keeps a connection to every rank",
          "ulimit -n 65536"};
}

Finding check_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const auto quota = core_quota(); quota && *quota < cores) {
    return {
        "cores", Level::warn,
        fmt::format("{} to run on, but a cgroup quota of {:.1f}: ranks that wait are put to sleep",
                    cores, *quota),
        fmt::format("run at most {} ranks here, or lift the quota (docker run --cpus {})",
                    std::max(1, static_cast<int>(*quota)), cores)};
  }
  return {"cores", Level::ok,
          fmt::format("{} to run on; more ranks than that wait without spinning", cores)};
}

Finding check_clock() {
  using Clock = std::chrono::steady_clock;
  constexpr int calls = 20'000;
  const auto begin = Clock::now();
  auto end = begin;
  for (int call = 0; call < calls; ++call) {
    end = Clock::now();
  }
  const double ns = std::chrono::duration<double, std::nano>(end - begin).count() / calls;
  const std::string source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::string found =
      fmt::format("{}, {:.0f} ns a look", source.empty() ? "unknown source" : source, ns);
  constexpr double slow_ns = 300;  // a system call, rather than a register
  if (ns < slow_ns) {
    return {"clock", Level::ok, found};
  }
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
