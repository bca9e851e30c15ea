#include "comm/coordinator/timed_coordinator.hpp"

#include <chrono>

namespace sprat::comm {

std::optional<Refusal> TimedCoordinator::admit(const Hello& hello, std::string_view from) {
  auto refusal = coordinator_.admit(hello, from);
  settle();
  return refusal;
}

bool TimedCoordinator::received(int rank, Frame frame) {
  const bool allowed =
      coordinator_.received(rank, std::move(frame), std::chrono::steady_clock::now());
  settle();
  return allowed;
}

void TimedCoordinator::ended(int rank, std::string_view how) {
  coordinator_.ended(rank, how);
  settle();
}

void TimedCoordinator::excuse(int rank) {
  coordinator_.excuse(rank);
  settle();
}

void TimedCoordinator::finish() {
  coordinator_.finish();
  settle();
}

void TimedCoordinator::stop() {
  deliver_ = nullptr;
  timer_.cancel();
}

void TimedCoordinator::settle() {
  for (const auto& [to, frame] : coordinator_.take()) {
    if (deliver_) {
      deliver_(to, frame);
    }
  }
  // After the frames above, which still go by the old numbers.
  if (const auto kept = coordinator_.take_renumbering(); kept && renumbered_) {
    renumbered_(*kept);
  }
  const auto deadline = coordinator_.deadline();
  if (!deadline || !deliver_) {
    return;
  }
  timer_.expires_at(*deadline);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || !self) {
      return;
    }
    self->coordinator_.tick(std::chrono::steady_clock::now());
    self->settle();
  });
}

}  // namespace sprat::comm
