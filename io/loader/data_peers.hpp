// What the public handle of hosts that share blocks stands for.
#pragma once

#include <memory>

#include "io/caches/block_peers.hpp"
#include "sprat/data.hpp"

namespace sprat {

class DataPeers::Impl {
 public:
  std::shared_ptr<io::BlockPeers> peers;  // shared with the caches of all loaders that use it
};

}  // namespace sprat
