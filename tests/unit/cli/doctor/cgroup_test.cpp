// Where the limits of control groups lie.
#include "cli/doctor/cgroup.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sprat::cli {
namespace {

using Folders = std::vector<std::string>;

constexpr const char* both_mounts =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST(ControlGroups, of_version_1_are_found_by_their_controller) {
  const std::string membership = "4:memory:/jobs/seven\n2:cpu,cpuacct:/\n0::/other\n";
  const auto memory = control_groups("memory", membership, both_mounts);
  EXPECT_EQ(memory.version, 1);
  EXPECT_EQ(memory.folders, (Folders{"/sys/fs/cgroup/memory/jobs/seven",
                                     "/sys/fs/cgroup/memory/jobs", "/sys/fs/cgroup/memory"}));
  const auto cpu = control_groups("cpu", membership, both_mounts);
  EXPECT_EQ(cpu.version, 1);
  EXPECT_EQ(cpu.folders, Folders{"/sys/fs/cgroup/cpu,cpuacct"});
}

TEST(ControlGroups, of_version_2_are_found_where_version_1_lacks_the_controller) {
  const auto groups =
      control_groups("memory", "0::/user.slice/job.scope\n",
                     "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
  EXPECT_EQ(groups.version, 2);
  EXPECT_EQ(groups.folders, (Folders{"/sys/fs/cgroup/user.slice/job.scope",
                                     "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"}));
}

// A container without a namespace of its own sees its group at the top, and the host's path to it.
TEST(ControlGroups, of_a_container_lie_below_what_is_mounted) {
  const std::string mounts =
      "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  EXPECT_EQ(control_groups("memory", "4:memory:/docker/abc\n", mounts).folders,
            Folders{"/sys/fs/cgroup/memory"});
  EXPECT_EQ(control_groups("memory", "4:memory:/docker/abc/inner\n", mounts).folders,
            (Folders{"/sys/fs/cgroup/memory/inner", "/sys/fs/cgroup/memory"}));
  EXPECT_EQ(control_groups("memory", "4:memory:/elsewhere\n", mounts).folders,
            Folders{"/sys/fs/cgroup/memory"});
}

TEST(ControlGroups, are_none_where_nothing_is_mounted) {
  EXPECT_TRUE(control_groups("memory", "4:memory:/a\n0::/\n", "").folders.empty());
  EXPECT_TRUE(control_groups("memory", "", both_mounts).folders.empty());
  EXPECT_TRUE(control_groups("memory", "nonsense\n", "nonsense\n").folders.empty());
}

/// Made-up groups, one in the other, with `file` in each.
std::optional<std::uint64_t> limit_of(int version, const char* file, const char* inner,
                                      const char* outer) {
  const auto root =
      std::filesystem::temp_directory_path() / ("sprat_cgroup_" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "job");
  std::ofstream(root / "job" / file) << inner << '\n';
  std::ofstream(root / file) << outer << '\n';
  const auto limit = memory_limit({version, {root / "job", root}});
  std::filesystem::remove_all(root);
  return limit;
}

TEST(ControlGroups, of_both_versions_have_a_file_with_the_limit_of_memory) {
  constexpr const char* none_in_version_1 = "9223372036854771712";
  EXPECT_EQ(limit_of(1, "memory.limit_in_bytes", "629145600", none_in_version_1), 629145600u);
  EXPECT_EQ(limit_of(1, "memory.limit_in_bytes", none_in_version_1, "1048576"), 1048576u);
  EXPECT_EQ(limit_of(1, "memory.limit_in_bytes", none_in_version_1, none_in_version_1),
            std::nullopt);
  EXPECT_EQ(limit_of(1, "memory.max", "4096", "4096"), std::nullopt);
  EXPECT_EQ(limit_of(2, "memory.max", "max", "629145600"), 629145600u);
  EXPECT_EQ(limit_of(2, "memory.max", "max", "max"), std::nullopt);
  EXPECT_EQ(limit_of(2, "memory.limit_in_bytes", "4096", "4096"), std::nullopt);
}

}  // namespace
}  // namespace sprat::cli
