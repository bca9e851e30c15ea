// What storage is mounted here, and how its client is set.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "cli/doctor/checks.hpp"
#include "io/lustre/detection.hpp"
#include "io/lustre/tunables.hpp"

namespace sprat::cli {
namespace {

using Level = Finding::Level;

io::HostSize this_host() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return {.cores = static_cast<int>(std::thread::hardware_concurrency()),
          .memory_bytes = pages > 0 && page > 0
                              ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)
                              : 0};
}

/// What one mount is. Asked without touching it: a server that is away would hang whoever does.
Finding mounted(const io::FsProbe& probe, const io::Mount& mount) {
  const io::StorageFound found =
      io::detect_storage({.magic = io::lustre_magic}, probe.mountinfo(), mount.point, std::nullopt);
  return {"lustre", Level::ok, found.sentence};
}

}  // namespace

std::vector<Finding> check_storage(const io::FsProbe& probe) {
  std::vector<Finding> findings;
  for (const io::Mount& mount : io::parse_mountinfo(probe.mountinfo())) {
    if (mount.type == "lustre") {
      findings.push_back(mounted(probe, mount));
    }
  }
  if (findings.empty()) {
    return {{"lustre", Level::ok, "none is mounted"}};
  }
  // Settings are the host's, not a mount's, so they are looked at once.
  const io::ClientSettings settings = io::read_client_settings(probe);
  for (const io::ClientAdvice& advice : io::client_advice(settings, this_host())) {
    findings.push_back({"lustre client", Level::warn, advice.found, advice.command});
  }
  std::string unread;
  for (const std::string_view name : settings.unread) {
    unread += fmt::format("{}{}", unread.empty() ? "" : ", ", name);
  }
  findings.push_back(
      {"lustre client", Level::ok,
       fmt::format("version {}, {} settings read, up to {} for each OST in flight{}",
                   settings.version.empty() ? "unknown" : settings.version,
                   settings.tunables.size(), bytes_text(io::target_cap_bytes(settings)),
                   unread.empty() ? "" : "; unread, defaults are taken: " + unread)});
  return findings;
}

}  // namespace sprat::cli
