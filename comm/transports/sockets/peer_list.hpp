// Some of a rank's peers, each once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace sprat::comm::sockets {

/// Ascending. Room is made when a peer is met, so that listing it needs no memory.
class PeerList {
 public:
  /// One more peer may be listed. May throw std::bad_alloc.
  void make_room() {
    if (peers_.capacity() <= most_) {
      peers_.reserve(2 * most_ + 1);
    }
    ++most_;
  }
  bool has(int peer) const noexcept { return std::ranges::binary_search(peers_, peer); }
  /// One that is not listed.
  void add(int peer) noexcept { peers_.insert(std::ranges::lower_bound(peers_, peer), peer); }
  template <class Predicate>
  void remove_if(Predicate predicate) noexcept {
    std::erase_if(peers_, predicate);
  }
  void clear() noexcept { peers_.clear(); }
  std::span<const int> all() const noexcept { return peers_; }

 private:
  std::vector<int> peers_;
  std::size_t most_ = 0;
};

}  // namespace sprat::comm::sockets
