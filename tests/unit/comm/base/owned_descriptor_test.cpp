// A descriptor is closed once, by its last owner; nothing that lies at a path makes its opening
// wait.
#include "comm/base/owned_descriptor.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

namespace sprat::comm {
namespace {

bool is_open(int number) { return fcntl(number, F_GETFD) >= 0; }

TEST(OwnedDescriptor, is_closed_with_its_owner) {
  int number = -1;
  {
    const OwnedDescriptor null = open_to_read("/dev/null");
    ASSERT_TRUE(null.open());
    number = null.number();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(OwnedDescriptor, goes_to_whom_it_is_moved_to) {
  OwnedDescriptor first = open_to_read("/dev/null");
  const int number = first.number();
  OwnedDescriptor second(std::move(first));
  EXPECT_EQ(second.number(), number);
  first.close();
  EXPECT_TRUE(is_open(number)) << "another one owned it";
  second = OwnedDescriptor();
  EXPECT_FALSE(second.open());
  EXPECT_FALSE(is_open(number));
}

TEST(OwnedDescriptor, of_a_call_that_failed_is_none) {
  const OwnedDescriptor none = open_to_read("/no/such/file");
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(none.open());
}

TEST(OwnedDescriptor, of_a_pipe_that_nobody_writes_into_is_not_waited_for) {
  const std::filesystem::path pipe = std::filesystem::path(testing::TempDir()) / "sprat-owned-pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(open_to_read(pipe.c_str()).open());
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace sprat::comm
