// Who takes part in a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sprat::collectives {

/// World ranks in communicator order, and their control blocks' offsets.
struct Membership {
  std::uint64_t id = 0;
  std::uint64_t domain = 0;  ///< What it fails with: see comm::FailureScope.
  std::string name;
  int rank = 0;
  std::vector<int> world_ranks;
  std::vector<std::size_t> control_blocks;  ///< In control segments; used for local peers.
};

}  // namespace sprat::collectives
