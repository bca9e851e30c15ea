// What a child of fork() finds, whatever its parent's other threads were doing.
#include "comm/base/fork.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <thread>

#include "comm/base/log.hpp"
#include "comm/coordinator/control_socket.hpp"
#include "comm/memory/memory.hpp"
#include "sprat/buffer.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::comm {
namespace {

constexpr int forks = sanitized ? 60 : 300;
constexpr unsigned deadline_s = 20;

/// The status of a child that does `body`; it is killed at the deadline.
int status_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(deadline_s);
    _exit(body());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

/// Repeats `work` in another thread while it lives.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          while (!stopping_) {
            work();
          }
        }) {}
  ~Meanwhile() {
    stopping_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

ino_t inode_of(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

TEST(Fork, leaves_no_copy_of_a_descriptor_that_is_being_opened) {
  const int file = memfd_create("forked", MFD_CLOEXEC);
  const ino_t inode = inode_of(file);
  {
    const Meanwhile opens(
        [file] { close_and_forget(open_here_only([file] { return dup(file); })); });
    for (int count = 0; count < forks; ++count) {
      ASSERT_EQ(status_of_child([&] {
                  for (int other = 0; other < 100; ++other) {
                    if (other != file && inode_of(other) == inode) {
                      return 1;
                    }
                  }
                  return 0;
                }),
                0)
          << "fork " << count;
    }
  }  // nobody copies it any more
  close(file);
}

TEST(Fork, leaves_no_copy_of_either_end_of_a_pair_that_is_being_opened) {
  std::atomic<bool> made = false;
  const auto is_socket = [](int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
  };
  int before = 0;  // sockets that whoever started this program has left open
  for (int descriptor = 0; descriptor < 100; ++descriptor) {
    before += is_socket(descriptor) ? 1 : 0;
  }
  boost::asio::io_context io;
  const Meanwhile opens([&] {
    const auto pair = socket_pair(io);
    made = true;
  });
  while (!made) {
    std::this_thread::yield();
  }
  for (int count = 0; count < 10 * forks; ++count) {
    ASSERT_EQ(status_of_child([&] {
                int sockets = 0;
                for (int descriptor = 0; descriptor < 100; ++descriptor) {
                  sockets += is_socket(descriptor) ? 1 : 0;
                }
                return sockets == before ? 0 : 1;
              }),
              0)
        << "fork " << count;
  }
}

TEST(Fork, leaves_the_locks_of_memory_free) {
  const Memory memory(1);
  const auto look = [&] { (void)find_memory(memory.data(), 1); };
  const Meanwhile looks(look), looks_too(look);
  const Meanwhile allocates([] { const Memory short_lived(1); });
  for (int count = 0; count < forks; ++count) {
    auto inherited = std::make_unique<Memory>(1);
    ASSERT_EQ(status_of_child([&] {
                inherited.reset();
                return Memory(1).data() == nullptr ? 1 : 0;
              }),
              0)
        << "fork " << count;
  }
}

TEST(Fork, leaves_the_lock_of_the_log_free) {
  const auto name = [] { name_log(0, 1, "here"); };
  name();  // what is made once is made
  const Meanwhile names(name), names_too(name);
  for (int count = 0; count < forks; ++count) {
    ASSERT_EQ(status_of_child([] {
                name_log(0, 1, "there");
                return 0;
              }),
              0)
        << "fork " << count;
  }
}

}  // namespace
}  // namespace sprat::comm
