// How processes that share blocks learn where the others listen: once, over whatever the job has.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/caches/block_peers.hpp"

namespace sprat::io {

struct JoinPeers {
  std::string name;     ///< Of this host, unlike other hosts', the same in the next run.
  std::string address;  ///< At which the others reach it, as numbers.
  /// Gives every process' text, in one order on all of them; called once, by all of them together:
  /// an all_gather. What passes through it is secret from those outside of the job.
  std::function<std::vector<std::string>(const std::string&)> gather;
};

/// Throws what `gather` throws, and Error{unavailable} naming a host whose text makes no sense.
std::shared_ptr<BlockPeers> join_peers(const JoinPeers& request);

}  // namespace sprat::io
