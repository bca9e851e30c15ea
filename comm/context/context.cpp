#include "comm/context/context.hpp"

#include "comm/base/check.hpp"

namespace sprat::comm {
Context::~Context() {
  progress_.stop();
  if (search_thread_.joinable()) {
    search_thread_.join();
  }
  // No control message arrives from here on. One that is being handled may still tell: the pointer
  // stays until the rendezvous is gone, which reset() would clear first.
  delete rendezvous_.get();
  static_cast<void>(rendezvous_.release());
  if (leave_thread_.joinable()) {
    leave_thread_.join();
  }
  delete failure_.load(std::memory_order_acquire);
}

void Context::require_here() const {
  need(here(), "this process was forked by rank ", rank_,
       ", whose communicators are not usable here; join a job of its own after fork()");
}

std::vector<int> Context::hosts() const {
  std::vector<int> hosts;
  for (const Peer& peer : peers_) {
    hosts.push_back(peer.host_index);
  }
  return hosts;
}

std::string Context::describe_peer(int rank) const {
  const Peer& peer = peers_[rank];
  return memory_.in_process() ? text("rank ", rank)
                              : text("rank ", rank, " (", peer.host, ", pid ", peer.pid, ")");
}

void Context::drive_until(const std::function<bool()>& done) {
  require_here();
  progress_.drive_until(done);
}

void Context::remove(Driver* driver) {
  const auto token = take_token();
  progress_.drivers().remove(driver);
}

void Context::note_freed(std::uint64_t communicator, std::uint64_t calls) {
  const auto token = take_token();
  progress_.drivers().note_freed(communicator, calls);
}

}  // namespace sprat::comm
