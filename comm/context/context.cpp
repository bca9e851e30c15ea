#include "comm/context/context.hpp"

#include <algorithm>
#include <limits>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"
#include "comm/context/context_header.hpp"
#include "comm/context/fences.hpp"
#include "comm/memory/foreign_memory.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

// Looks at a wire, a system call each, before others may have the core.
constexpr int wire_spin_rounds = 50;
// Sleeping threads look again this often: what a wire brings rings no bell.
constexpr std::chrono::nanoseconds sleep_with_wire = 50us;
constexpr std::chrono::nanoseconds sleep_without_wire = 2ms;
// Communicators that are remembered when they have gone. Who waits for one asks within seconds.
constexpr std::size_t most_freed = 256;
// The progress thread takes the core from whoever computes: the longer nothing comes, the longer it
// sleeps, up to this, but no longer than it has waited already.
constexpr std::chrono::nanoseconds longest_sleep_with_wire = 1ms;
// A thread that waits for the token has woken by then, unless its core is taken.
constexpr std::chrono::nanoseconds longest_hand_over = 100us;

}  // namespace

Context::~Context() {
  {
    std::lock_guard lock(progress_mutex_);
    stopping_ = true;
  }
  progress_wake_.notify_all();
  if (progress_thread_.joinable()) {
    progress_thread_.join();
  }
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

Context::Header& Context::header(const Segment& segment) {
  return *reinterpret_cast<Header*>(segment.data());
}

Context::Header& Context::header(int rank) const {
  return *reinterpret_cast<Header*>(peers_[rank].control);
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

MessageTransport& Context::messages(int rank) {
  return in_process_ || peers_[rank].local ? *local_messages_ : *wire_messages_;
}

void Context::add(Driver* driver) { drivers_.push_back(driver); }

void Context::remove(Driver* driver) {
  const auto token = take_token();
  std::erase(drivers_, driver);
}

bool Context::is_like_another(std::uint64_t number) const {
  constexpr std::uint64_t mask = (std::uint64_t{1} << communicator_bits) - 1;
  return std::ranges::any_of(drivers_, [number](const Driver* driver) {
    const std::uint64_t theirs = driver->communicator();
    return theirs != Driver::no_communicator && ((theirs ^ number) & mask) == 0;
  });
}

void Context::note_freed(std::uint64_t communicator, std::uint64_t calls) {
  const auto token = take_token();
  if (freed_.size() == most_freed) {
    freed_.pop_front();
  }
  freed_.push_back({communicator, calls});
}

bool Context::drive_once() {
  Token token = try_token();
  if (!token) {
    return false;
  }
  bool moved = false;
  if (messages_in_flight_.load(std::memory_order_relaxed) > 0) {
    moved |= local_messages_ && local_messages_->progress();
    moved |= wire_messages_ && wire_messages_->progress();
  }
  for (std::size_t i = 0; i < drivers_.size(); ++i) {
    moved |= drivers_[i]->advance();
  }
  token.unlock();
  if (moved && token_wanted()) {
    give_way();
  }
  return moved;
}

// Mutexes are not fair: who has just let the token go, and goes on driving, would have it again
// before a thread that sleeps for it has woken, slice after slice.
void Context::give_way() {
  const std::uint32_t before = taken_.load(std::memory_order_relaxed);
  const auto patience = wait_policy_->now() + longest_hand_over;
  while (token_wanted() && taken_.load(std::memory_order_relaxed) == before &&
         wait_policy_->now() < patience) {
    wait_policy_->yield();
  }
}

void Context::drive_until(const std::function<bool()>& done) {
  require_here();
  if (done()) {
    return;
  }
  status_->waiting_threads().fetch_add(1, std::memory_order_relaxed);
  int idle = 0;
  Clock::time_point idle_since{};
  while (!done()) {
    if (drive_once()) {
      idle = 0;
      continue;
    }
    if (idle == 0 && idle_since == Clock::time_point{}) {
      idle_since = wait_policy_->now();
    }
    const bool wire = wire_messages_ && messages_in_flight_.load(std::memory_order_relaxed) > 0;
    if (wait_policy_->rest(idle, oversubscribed_ || (wire && idle >= wire_spin_rounds))) {
      ++idle;
    } else {
      sleep_until_rung(done, sleep_with_wire);
    }
  }
  status_->waiting_threads().fetch_sub(1, std::memory_order_relaxed);
  if (idle_since != Clock::time_point{}) {
    waited_ns_.fetch_add((wait_policy_->now() - idle_since).count(), std::memory_order_relaxed);
  }
}

// A publisher writes, then looks for sleepers; a sleeper announces itself, then looks for what was
// written. Both with a fence between, so at least one of them sees the other.
void Context::sleep_until_rung(const std::function<bool()>& done,
                               std::chrono::nanoseconds with_wire) {
  Header& mine = header(rank_);
  mine.sleepers.fetch_add(1, std::memory_order_seq_cst);
  wait_policy_->point();
  if (light_bells_) {
    heavy_fence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  const std::uint32_t bell = mine.bell.load(std::memory_order_acquire);
  if (!drive_once() && !done()) {
    const bool wire = messages_in_flight_.load(std::memory_order_relaxed) > 0;
    wait_policy_->sleep(mine.bell, bell, wire ? with_wire : sleep_without_wire);
  }
  mine.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Context::ring_bell(int rank) {
  Header& theirs = header(rank);
  theirs.bell.fetch_add(1, std::memory_order_release);
  wait_policy_->wake(theirs.bell, rank);
}

void Context::ring(std::span<const int> local_peers) {
  wait_policy_->point();
  if (light_bells_) {
    light_fence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  for (const int peer : local_peers) {
    if (header(peer).sleepers.load(std::memory_order_relaxed) > 0) [[unlikely]] {
      ring_bell(peer);
    }
  }
}

void Context::ring_self() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header(rank_).sleepers.load(std::memory_order_relaxed) > 0) {
    ring_bell(rank_);
  }
}

void Context::count_unattended(int delta) {
  std::lock_guard lock(progress_mutex_);
  unattended_ += delta;
  if (delta > 0 && !stopping_ && may_start_progress_thread_) {
    if (!progress_thread_.joinable()) {
      progress_thread_ = start_thread("the progress thread", [this] { run_progress_thread(); });
    }
    progress_wake_.notify_one();
  }
}

void Context::run_progress_thread() {
  std::unique_lock lock(progress_mutex_);
  auto moved = wait_policy_->now();
  while (!stopping_) {
    if (unattended_ == 0) {
      progress_wake_.wait(lock, [this] { return stopping_ || unattended_ > 0; });
      moved = wait_policy_->now();
    }
    if (status_->waiting_threads().load(std::memory_order_relaxed) > 0) {
      progress_wake_.wait_for(lock, 1ms);  // whoever waits drives; look again soon
      continue;
    }
    lock.unlock();
    if (drive_once()) {
      moved = wait_policy_->now();
    } else {
      const std::chrono::nanoseconds waited = wait_policy_->now() - moved;
      sleep_until_rung([] { return false; },
                       std::clamp(waited, sleep_with_wire, longest_sleep_with_wire));
    }
    lock.lock();
  }
}

}  // namespace sprat::comm
