// What lies where a status page was may be anything by now.
#include "comm/status/status_search.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "comm/memory/segment.hpp"
#include "comm/status/status_page.hpp"
#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"

namespace sprat::comm::status {
namespace {

TEST(StatusSearch, does_not_wait_for_who_writes_to_a_pipe) {
  const Folder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::promise<bool> found;
  std::future<bool> future = found.get_future();
  std::thread reader([&] { found.set_value(Reader::open(path.c_str()).has_value()); });
  const bool waits = future.wait_for(5s) == std::future_status::timeout;
  EXPECT_FALSE(waits);
  if (waits) {  // the writer that it waits for lets the thread end
    close(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  reader.join();
  EXPECT_FALSE(future.get());
}

TEST(StatusSearch, maps_a_segment_and_nothing_that_may_shrink) {
  const Segment segment(1);
  const std::string fd = "/proc/self/fd/" + std::to_string(segment.ref().fd);
  EXPECT_TRUE(Reader::open(fd.c_str()));
  EXPECT_FALSE(Reader::open("/proc/self/exe"));
  EXPECT_FALSE(Reader::open("/proc/self/fd/-1"));
}

}  // namespace
}  // namespace sprat::comm::status
