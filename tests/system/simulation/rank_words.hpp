// What ranks of a job that nobody runs would say of themselves as they join.
#pragma once

#include <string>

#include "comm/context/peer_info.hpp"
#include "tests/system/simulation/random.hpp"

namespace sprat::simulation {

/// Of ranks on hosts with so many each. What differs from rank to rank in a real job does here.
class RankWords {
 public:
  explicit RankWords(int ranks_per_host) : ranks_per_host_(ranks_per_host) {}
  comm::PeerInfo greeting(int rank);
  comm::Reach reach(int rank) const;
  /// A wire's address: that of a socket, and 16 random bytes that connections prove.
  comm::TransportAddresses address(int rank);

 private:
  int ranks_per_host_;
  Random random_{1};
};

}  // namespace sprat::simulation
