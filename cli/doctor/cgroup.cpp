#include "cli/doctor/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace sprat::cli {
namespace {

/// Whether `word` is one of those that `list` has between commas.
bool has_word(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) {
      return true;
    }
  }
  return false;
}

/// Of version 1 with that controller; of version 2 if it is empty.
std::optional<std::string> group_of(std::string_view controller, const std::string& membership) {
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool wanted =
        controller.empty() ? controllers.empty() : has_word(controllers, controller);
    if (wanted) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

struct Mount {
  std::string root;  ///< The group that lies at the folder.
  std::string folder;
};

std::optional<Mount> mount_of(std::string_view controller, const std::string& mounts) {
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == line.npos) {
      continue;
    }
    std::istringstream front(line.substr(0, dash)), back(line.substr(dash + 3));
    std::string number, parent, device, type, source, options;
    Mount mount;
    front >> number >> parent >> device >> mount.root >> mount.folder;
    back >> type >> source >> options;
    const bool wanted =
        controller.empty() ? type == "cgroup2" : type == "cgroup" && has_word(options, controller);
    if (wanted) {
      return mount;
    }
  }
  return std::nullopt;
}

/// In a container the group that lies at the top may be the process's own, or not the one that its
/// membership speaks of.
std::vector<std::string> folders_of(const Mount& mount, std::string group) {
  if (mount.root != "/") {
    const bool inside = group == mount.root || group.starts_with(mount.root + "/");
    group = inside ? group.substr(mount.root.size()) : "";
  }
  while (group.ends_with('/')) {
    group.pop_back();
  }
  std::vector<std::string> folders;
  for (; !group.empty(); group.resize(group.rfind('/'))) {
    folders.push_back(mount.folder + group);
  }
  folders.push_back(mount.folder);
  return folders;
}

std::string content_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

ControlGroups control_groups(std::string_view controller, const std::string& membership,
                             const std::string& mounts) {
  for (const int version : {1, 2}) {
    const std::string_view wanted = version == 1 ? controller : std::string_view();
    const auto mount = mount_of(wanted, mounts);
    const auto group = group_of(wanted, membership);
    if (mount && group) {
      return {version, folders_of(*mount, *group)};
    }
  }
  return {};
}

ControlGroups own_control_groups(std::string_view controller) {
  return control_groups(controller, content_of("/proc/self/cgroup"),
                        content_of("/proc/self/mountinfo"));
}

std::optional<std::uint64_t> memory_limit(const ControlGroups& groups) {
  constexpr std::uint64_t none = std::uint64_t{1} << 62;  // version 1 has a number for that
  const char* file = groups.version == 1 ? "/memory.limit_in_bytes" : "/memory.max";
  std::optional<std::uint64_t> least;
  for (const std::string& folder : groups.folders) {
    std::uint64_t limit = none;
    std::ifstream(folder + file) >> limit;  // "max" is no number
    if (limit > 0 && limit < none) {
      least = std::min(limit, least.value_or(none));
    }
  }
  return least;
}

}  // namespace sprat::cli
