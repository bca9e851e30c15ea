// Which ranks share memory, decided from what all of them found. Pure.
#pragma once

#include <string>
#include <vector>

namespace sprat::comm {

/// What a rank says of itself, after trying to map its peers' memory.
struct Reach {
  std::string label;             ///< Ranks of different labels never share memory.
  std::vector<int> mapped = {};  ///< Ranks whose memory it has mapped, itself included.
  /// Ranks whose private memory it can read.
  std::vector<int> readable = {};
  bool operator==(const Reach&) const = default;
};

/// A dense host index for each rank. Ranks of one label share a host if each has mapped each;
/// where any pair of them has not, every rank of that label is a host of its own.
std::vector<int> group_hosts(const std::vector<Reach>& reaches);

/// Whether on every host each rank can read the private memory of all others. `readable_by`: by
/// rank, whose memory it can.
bool all_read_each_other(const std::vector<int>& host_of,
                         const std::vector<std::vector<int>>& readable_by);

}  // namespace sprat::comm
