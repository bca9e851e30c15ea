// Files of control groups, of version 1 and 2.
//
// The folder of a process's group is told as seen from the host, and in a container the file system
// of groups may begin at the container's own. So every folder on the way up is tried, the first one
// included.
#include "comm/base/memory_room.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

struct Version {
  const char* controller;  ///< In /proc/PID/cgroup.
  const char* folder;      ///< Below the root.
  const char *limit, *usage;
  const char* subtree;  ///< Before the keys of memory.stat that count groups below, too.
};
constexpr Version versions[] = {
    {"memory", "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
    {"", "", "memory.max", "memory.current", ""}};

/// Nothing if there is no number, as where version 2 says "max".
std::optional<std::size_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// Files in memory, which the kernel drops when memory is short.
std::size_t dropped_if_short(const std::string& folder, const Version& version) {
  std::ifstream file(folder + "/memory.stat");
  const std::string prefix = version.subtree;
  std::size_t bytes = 0, value = 0;
  for (std::string key; file >> key >> value;) {
    bytes += key == prefix + "active_file" || key == prefix + "inactive_file" ? value : 0;
  }
  return bytes;
}

std::optional<MemoryRoom> room_of(const std::string& folder, const Version& version) {
  const std::string limit_file = folder + "/" + version.limit;
  const auto limit = read_number(limit_file), usage = read_number(folder + "/" + version.usage);
  if (!limit || !usage) {
    return std::nullopt;
  }
  const std::size_t taken = *usage - std::min(*usage, dropped_if_short(folder, version));
  return MemoryRoom{
      .bytes = *limit - std::min(*limit, taken), .limit = *limit, .limit_file = limit_file};
}

/// "4:cpu,memory:/path", of version 2 "0::/path".
std::optional<std::string> path_of(const std::string& line, std::string_view controller) {
  std::istringstream fields(line);
  std::string number, controllers, path;
  std::getline(fields, number, ':');
  std::getline(fields, controllers, ':');
  std::getline(fields, path);
  bool found = controller == controllers;
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    found = found || name == controller;
  }
  return found ? std::optional(path) : std::nullopt;
}

}  // namespace

std::optional<MemoryRoom> memory_room(const std::string& root, const std::string& membership) {
  std::optional<MemoryRoom> least;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    for (const Version& version : versions) {
      std::optional<std::string> path = path_of(line, version.controller);
      while (path) {
        const auto room = room_of(root + version.folder + *path, version);
        if (room && (!least || room->bytes < least->bytes)) {
          least = room;
        }
        const std::size_t slash = path->rfind('/');
        path = slash == std::string::npos ? std::nullopt : std::optional(path->substr(0, slash));
      }
    }
  }
  return least;
}

void need_memory(std::size_t bytes, const char* what) {
  // A little nearly always fits, and reading files for it would take longer than making it.
  constexpr std::size_t least = std::size_t{2} << 20;
  struct sysinfo machine {};
  if (bytes < least || sysinfo(&machine) != 0) {
    return;
  }
  const std::size_t most = (machine.totalram + machine.totalswap) * machine.mem_unit;
  need(bytes <= most, "cannot have ", bytes, " bytes of ", what, ": this machine has ", most);
  const std::optional<MemoryRoom> room = machine.totalswap > 0 ? std::nullopt : memory_room();
  if (room) {
    need(bytes <= room->bytes, "cannot have ", bytes, " bytes of ", what, ": ", room->limit_file,
         " allows ", room->limit, ", of which ", room->bytes,
         " are left; raise that limit, or let this rank hold less");
  }
}

}  // namespace sprat::comm
