// Which host of a job keeps a block. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/caches/block.hpp"

namespace sprat::io {

/// Consistent hashing by the highest random weight (Thaler and Ravishankar 1998): each host draws a
/// number for the block, and the highest one owns it. If a host comes or goes, the blocks that it
/// gets or had move, one in n, and no others. Equal wherever the hosts have equal names, in any
/// order.
///
/// Processes of one host share what it owns; those of another ask one each of them, so that none
/// serves all.
class BlockOwners {
 public:
  /// `hosts` has the name of each process' host, `here` is this process. Throws
  /// Error{invalid_argument} if there are none.
  BlockOwners(std::span<const std::string> hosts, std::size_t here);
  /// The process to ask for the block: `here` if this host owns it. O(hosts), four multiplications
  /// each.
  std::size_t owner(const BlockKey& key) const;
  std::size_t hosts() const { return seeds_.size(); }

 private:
  std::vector<std::uint64_t> seeds_;  // of each host, by its name
  std::vector<std::size_t> asked_;    // the process of each that this one asks
};

}  // namespace sprat::io
