// What becomes of messages that no receive has asked for yet: for shm and sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/transports/transport.hpp"

namespace sprat::comm {

/// Of one transport; its links look here, and it outlives them.
struct UnexpectedRules {
  std::size_t most_bytes;  ///< Of those kept for one peer.
  /// By a communicator's number in tags: they are dropped.
  std::vector<bool> forgotten = std::vector<bool>(std::size_t{1} << communicator_bits);

  void forget(std::uint64_t communicator) { forgotten[communicator % forgotten.size()] = true; }
  bool is_forgotten(std::uint64_t tag) const { return forgotten[communicator_of(tag)]; }
};

}  // namespace sprat::comm
