// The server of ncclUniqueIds, where threads or descriptors run out.
#include "plugins/nccl_abi/meeting_server.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <vector>

#include "plugins/nccl_abi/meeting_store.hpp"
#include "sprat/error.hpp"

namespace {

/// How many more times this process has no descriptor for a connection.
std::atomic<int> refused_accepts{0};

}  // namespace

/// In the place of the system's, for all of this program.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* bytes, int flags) {
  static const auto real =
      reinterpret_cast<int (*)(int, sockaddr*, socklen_t*, int)>(dlsym(RTLD_NEXT, "accept4"));
  if (refused_accepts.load() > 0) {
    refused_accepts.fetch_sub(1);
    errno = EMFILE;
    return -1;
  }
  return real(listener, address, bytes, flags);
}

namespace sprat::nccl {
namespace {

using namespace std::chrono_literals;

/// While it lives, no thread can be started: its stack would be larger than the address space.
class NoThreads final {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    pthread_attr_setstacksize(&huge, std::size_t{1} << 60);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
  }
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

/// Those that this thread lets through.
std::vector<int> open_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  std::vector<int> open;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&blocked, signal) == 0) {
      open.push_back(signal);
    }
  }
  return open;
}

std::ptrdiff_t count_descriptors() {
  const std::filesystem::directory_iterator first("/proc/self/fd");
  return std::distance(first, {});
}

TEST(NcclMeetingServer, leaves_nothing_behind_where_it_gets_no_thread) {
  const std::vector<int> signals = open_signals();
  const std::ptrdiff_t descriptors = count_descriptors();
  {
    const NoThreads none;
    EXPECT_THROW(MeetingServer{Config{}}, Error);
  }
  EXPECT_EQ(open_signals(), signals);
  EXPECT_EQ(count_descriptors(), descriptors);
}

TEST(NcclMeetingServer, waits_for_a_descriptor) {
  const auto store = store_at(open_meeting(Config{}));
  constexpr int refused = 4;
  refused_accepts.store(refused);
  const auto begun = std::chrono::steady_clock::now();
  store->set("key", "value");
  // Whoever tries at once, again and again, has used them up by now.
  EXPECT_GE(std::chrono::steady_clock::now() - begun, refused * 100ms);
  EXPECT_EQ(refused_accepts.load(), 0);
  EXPECT_EQ(store->get("key", 0ms), "value");
}

}  // namespace
}  // namespace sprat::nccl
