#include "collectives/work.hpp"

namespace sprat {

void Work::wait() {
  if (state_) {
    state_->wait();
  }
}

bool Work::test() { return !state_ || state_->test(); }

void Work::State::wait() {
  if (!done()) {
    context_->drive_until(done_);
  }
  rethrow();
}

bool Work::State::test() {
  if (!done()) {
    context_->drive_once();
  }
  if (!done()) {
    return false;
  }
  rethrow();
  return true;
}

void Work::State::rethrow() {
  if (error_) {
    context_->quiesce();
    throw *error_;
  }
}

void Work::State::leave_unattended() {
  if (done()) {
    return;
  }
  unattended_.store(true);
  context_->count_unattended(+1);
  // The operation may have ended before it could see the flag.
  if (done() && unattended_.exchange(false)) {
    context_->count_unattended(-1);
  }
}

void Work::State::finish() { end(); }

void Work::State::fail(const Error& error) {
  error_.emplace(error);
  end();
}

void Work::State::end() {
  done_.store(true);  // sequentially consistent with leave_unattended()
  if (unattended_.exchange(false)) {
    context_->count_unattended(-1);
  }
  context_->ring_self();
}

}  // namespace sprat
