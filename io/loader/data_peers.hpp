// What the public handle of hosts that share blocks stands for.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "io/caches/block_peers.hpp"
#include "sprat/data.hpp"

namespace sprat {

class DataPeers::Impl : public std::enable_shared_from_this<DataPeers::Impl> {
 public:
  explicit Impl(std::shared_ptr<io::BlockPeers> peers) : peers_(std::move(peers)) {}
  /// For one loader, until it lets go of them: whoever receives gets the answers to all questions.
  /// Throws Error{invalid_argument} if another one has them.
  std::shared_ptr<io::BlockPeers> lend();

 private:
  const std::shared_ptr<io::BlockPeers> peers_;  // shared with nobody; lent
  std::atomic<bool> lent_ = false;
};

}  // namespace sprat
