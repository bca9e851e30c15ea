#include "comm/host/process_watch.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "comm/base/fork.hpp"
#include "comm/base/log.hpp"

namespace sprat::comm {
namespace {

/// A farewell travels by way of the coordinator and may arrive after its process has ended. A
/// process that said farewell is not lost, so its end is told only after this time.
constexpr std::chrono::milliseconds farewell_grace{50};

/// Asked of the kernel, since a wait of asio's may end without reason: it gives the state of a
/// descriptor that was closed to the next one, and an event that was the closed one's may still be
/// on its way. A living process must not be taken for lost by it.
bool has_ended(int process) {
  pollfd asked{process, POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

}  // namespace

ProcessWatch::ProcessWatch(boost::asio::io_context& io, std::function<void()> ended)
    : process_(io), timer_(io), ended_(std::move(ended)) {}

std::shared_ptr<ProcessWatch> ProcessWatch::start(boost::asio::io_context& io, pid_t pid,
                                                  std::function<void()> ended) {
  std::shared_ptr<ProcessWatch> watch(new ProcessWatch(io, std::move(ended)));
  const int process = open_here_only([&] {
    return static_cast<int>(
        syscall(SYS_pidfd_open, pid, 0));  // pidfds are close-on-exec by themselves
  });
  if (process < 0 && errno == ESRCH) {  // it has ended already
    watch->wait_for_farewell();
  } else if (process < 0) {
    log().info("process {} cannot be watched ({}); its connection tells when it ends", pid,
               std::strerror(errno));
  } else {
    watch->process_.assign(process);
    watch->wait_for_end();
  }
  return watch;
}

void ProcessWatch::wait_for_end() {
  process_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [watch = shared_from_this()](const boost::system::error_code& error) {
                        if (error) {
                          return;
                        }
                        has_ended(watch->process_.native_handle()) ? watch->wait_for_farewell()
                                                                   : watch->wait_for_end();
                      });
}

void ProcessWatch::wait_for_farewell() {
  if (!ended_) {
    return;
  }
  timer_.expires_after(farewell_grace);
  timer_.async_wait([watch = shared_from_this()](const boost::system::error_code& error) {
    if (!error && watch->ended_) {
      std::exchange(watch->ended_, nullptr)();
    }
  });
}

void ProcessWatch::cancel() {
  ended_ = nullptr;
  timer_.cancel();
  // Older kernels give all pidfds one inode, so a child of fork() cannot tell by the file whether
  // this number still means this pidfd. It is forgotten in the same step in which it is closed.
  if (process_.is_open()) {
    close_and_forget(process_.release());
  }
}

}  // namespace sprat::comm
