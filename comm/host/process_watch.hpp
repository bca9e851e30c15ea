// Tells when a process of this host ends.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

namespace sprat::comm {

/// Shared: a completion that is under way keeps it. Used on the thread of its io_context.
class ProcessWatch final : public std::enable_shared_from_this<ProcessWatch> {
 public:
  /// Calls `ended` once, 50 ms after the process has: a farewell that it said may still be on its
  /// way. Never, with a line in the log, if the process cannot be watched.
  static std::shared_ptr<ProcessWatch> start(boost::asio::io_context& io, pid_t pid,
                                             std::function<void()> ended);
  /// `ended` is not called any more.
  void cancel();

 private:
  ProcessWatch(boost::asio::io_context& io, std::function<void()> ended);
  void wait_for_end();
  void wait_for_farewell();

  boost::asio::posix::stream_descriptor process_;
  boost::asio::steady_timer timer_;
  std::function<void()> ended_;
};

}  // namespace sprat::comm
