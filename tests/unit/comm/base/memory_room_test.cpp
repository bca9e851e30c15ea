// What control groups leave, from files as the kernel has them.
#include "comm/base/memory_room.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace sprat::comm {
namespace {

class MemoryRoomTest : public testing::Test {
 protected:
  ~MemoryRoomTest() override { std::filesystem::remove_all(root_); }

  void write(const std::map<std::string, std::string>& files) {
    for (const auto& [path, text] : files) {
      std::filesystem::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << text << '\n';
    }
  }
  std::optional<MemoryRoom> room() const { return memory_room(root_, root_ / "self"); }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("sprat-memory-room-" + std::to_string(getpid()));
};

TEST_F(MemoryRoomTest, of_version_1_counts_files_that_can_be_dropped) {
  write({{"self", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/"},
         {"memory/a/b/memory.limit_in_bytes", "1000"},
         {"memory/a/b/memory.usage_in_bytes", "900"},
         {"memory/a/b/memory.stat",
          "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 70\ntotal_rss 800"}});
  ASSERT_TRUE(room());
  EXPECT_EQ(room()->bytes, 200u);
  EXPECT_EQ(room()->limit, 1000u);
  EXPECT_EQ(room()->limit_file, root_ / "memory/a/b/memory.limit_in_bytes");
}

TEST_F(MemoryRoomTest, of_version_2_is_that_of_the_group_above_if_it_leaves_less) {
  write({{"self", "0::/a/b"},
         {"a/b/memory.max", "max"},
         {"a/b/memory.current", "100"},
         {"a/memory.max", "1000"},
         {"a/memory.current", "1200"},
         {"a/memory.stat", "anon 900\ninactive_file 250\nactive_file 50"}});
  ASSERT_TRUE(room());
  EXPECT_EQ(room()->bytes, 100u);
  EXPECT_EQ(room()->limit_file, root_ / "a/memory.max");
}

TEST_F(MemoryRoomTest, in_a_container_is_that_of_the_first_folder) {
  write({{"self", "4:memory:/container/7"},
         {"memory/memory.limit_in_bytes", "1000"},
         {"memory/memory.usage_in_bytes", "1300"}});
  ASSERT_TRUE(room());
  EXPECT_EQ(room()->bytes, 0u);
}

TEST_F(MemoryRoomTest, is_nothing_without_a_limit_that_can_be_read) {
  write({{"self", "0::/a"}, {"a/memory.max", "max"}, {"a/memory.current", "100"}});
  EXPECT_FALSE(room());
  EXPECT_FALSE(memory_room(root_, root_ / "none"));
}

}  // namespace
}  // namespace sprat::comm
