#include "comm/context/context.hpp"

#include <algorithm>
#include <limits>

#include "comm/base/check.hpp"
#include "comm/context/context_header.hpp"
#include "comm/memory/foreign_memory.hpp"

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

ControlHeader& Context::header(const Segment& segment) {
  return *reinterpret_cast<ControlHeader*>(segment.data());
}

ControlHeader& Context::header(int rank) const {
  return *reinterpret_cast<ControlHeader*>(peers_[rank].control);
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
  return in_process_ ? text("rank ", rank)
                     : text("rank ", rank, " (", peer.host, ", pid ", peer.pid, ")");
}

std::size_t Context::allocate_control(std::size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  for (auto& [free_bytes, offset] : free_control_) {
    if (free_bytes == bytes) {
      const std::size_t taken = offset;
      std::swap(free_control_.back(),
                *std::find(free_control_.begin(), free_control_.end(), std::pair(bytes, taken)));
      free_control_.pop_back();
      return taken;
    }
  }
  need(control_used_ + bytes <= control_->bytes(), "the control segment of ", control_->bytes(),
       " bytes is full; free communicators that are no longer used");
  return std::exchange(control_used_, control_used_ + bytes);
}

void Context::free_control(std::size_t offset, std::size_t bytes) {
  free_control_.emplace_back((bytes + 63) / 64 * 64, offset);
}

MemoryRef Context::describe(const void* data, std::size_t bytes) const noexcept {
  if (in_process_) {
    return {MemoryRef::Kind::address, -1, 0, 0, reinterpret_cast<std::uintptr_t>(data)};
  }
  if (const auto shared = find_memory(data, bytes)) {
    return *shared;
  }
  return readable_ && bytes > 0
             ? MemoryRef{MemoryRef::Kind::process, -1, 0, 0, reinterpret_cast<std::uintptr_t>(data)}
             : MemoryRef{};
}

PeerMemory Context::view(int rank, const MemoryRef& ref) {
  constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();
  switch (ref.kind) {
    case MemoryRef::Kind::unreachable:
      return {};
    case MemoryRef::Kind::address:  // of another process it would be nonsense
      return in_process_ ? PeerMemory{reinterpret_cast<const std::byte*>(ref.offset), unknown}
                         : PeerMemory{};
    case MemoryRef::Kind::process:
      return {reinterpret_cast<const std::byte*>(ref.offset), unknown};
    case MemoryRef::Kind::segment:
      return mappings_[rank]->view(ref);
  }
  return {};
}

bool Context::read(int rank, const std::byte* from, std::byte* to,
                   std::size_t bytes) const noexcept {
  return read_foreign(peers_[rank].pid, reinterpret_cast<std::uintptr_t>(from), to, bytes);
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
