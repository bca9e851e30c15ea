#include "comm/timed_hub.hpp"

#include <chrono>

namespace sprat::comm {

std::optional<Refusal> TimedHub::admit(const Hello& hello, std::string_view from) {
  auto refusal = hub_.admit(hello, from);
  settle();
  return refusal;
}

bool TimedHub::received(int rank, Frame frame) {
  const bool allowed = hub_.received(rank, std::move(frame), std::chrono::steady_clock::now());
  settle();
  return allowed;
}

void TimedHub::ended(int rank, std::string_view how) {
  hub_.ended(rank, how);
  settle();
}

void TimedHub::excuse(int rank) {
  hub_.excuse(rank);
  settle();
}

void TimedHub::stop() {
  deliver_ = nullptr;
  timer_.cancel();
}

void TimedHub::settle() {
  for (const auto& [to, frame] : hub_.take()) {
    if (deliver_) deliver_(to, frame);
  }
  if (const auto kept = hub_.take_renumbering(); kept && renumbered_) renumbered_(*kept);
  const auto deadline = hub_.deadline();
  if (!deadline || !deliver_) return;
  timer_.expires_at(*deadline);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || !self) return;
    self->hub_.tick(std::chrono::steady_clock::now());
    self->settle();
  });
}

}  // namespace sprat::comm
