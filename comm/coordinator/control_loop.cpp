#include "comm/coordinator/control_loop.hpp"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <future>

#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::comm {

ControlLoop::ControlLoop() {
  // A signal goes to any thread that does not block it, and the program's handlers are for its own
  // threads. A new thread inherits the mask of its maker, so all are blocked while it is made.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = start_thread("the control thread", [this] { serve(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ControlLoop::~ControlLoop() {
  stay_.reset();
  io_.stop();
  thread_.join();
}

void ControlLoop::run(const std::function<void()>& work) {
  // On the loop's own thread a wait for the loop would never end.
  if (std::this_thread::get_id() == thread_.get_id()) {
    work();
    return;
  }
  std::promise<void> done;
  post([&] {
    try {
      work();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

void ControlLoop::serve() noexcept {
  pthread_setname_np(pthread_self(), "sprat-control");
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception& error) {
      // Only one callback has failed. The others go on, and with them the notices of the job's
      // failure.
      log().error("the control thread caught: {}", error.what());
    }
  }
}

}  // namespace sprat::comm
