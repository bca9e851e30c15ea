// A thread that sleeps in epoll and runs what is asked of it: timers, sockets, process watches.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <thread>
#include <utility>

namespace sprat::comm {

/// Everything that belongs to the loop is touched on its thread only. Destroyed on another thread,
/// after everything that was made with io().
class ControlLoop {
 public:
  ControlLoop();
  ~ControlLoop();
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;

  boost::asio::io_context& io() { return io_; }
  /// Runs `work` on the loop's thread, later, in the order of the posts. Any thread.
  template <class Work>
  void post(Work work) {
    boost::asio::post(io_, std::move(work));
  }
  /// Runs `work` on the loop's thread and waits until it is done. Throws what it throws.
  void run(const std::function<void()>& work);

 private:
  void serve() noexcept;

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> stay_{
      io_.get_executor()};
  std::thread thread_;
};

}  // namespace sprat::comm
