#include "comm/host/grouping.hpp"

#include <algorithm>
#include <map>

namespace sprat::comm {

std::vector<int> group_hosts(const std::vector<Reach>& reaches) {
  const int ranks = static_cast<int>(reaches.size());
  std::map<std::string, std::vector<int>> by_label;
  for (int rank = 0; rank < ranks; ++rank) {
    by_label[reaches[rank].label].push_back(rank);
  }
  std::map<std::string, bool> shares;
  // All or none: on a host every rank may read the memory of every other, so one pair that cannot
  // map each other makes the whole label unusable. (clang 14 captures no structured binding in a
  // lambda, hence the name `entry`.)
  for (const auto& entry : by_label) {
    const std::vector<int>& members = entry.second;
    shares[entry.first] = std::all_of(members.begin(), members.end(), [&](int rank) {
      const auto& mapped = reaches[rank].mapped;
      return std::all_of(members.begin(), members.end(), [&](int peer) {
        return std::find(mapped.begin(), mapped.end(), peer) != mapped.end();
      });
    });
  }
  // Hosts are numbered in the order of their lowest ranks, so that every rank computes the same.
  std::vector<int> host_of(ranks);
  std::map<std::string, int> index_of;
  int hosts = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& label = reaches[rank].label;
    const auto known = index_of.find(label);
    if (shares[label] && known != index_of.end()) {
      host_of[rank] = known->second;
    } else {
      host_of[rank] = index_of[label] = hosts++;
    }
  }
  return host_of;
}

bool all_read_each_other(const std::vector<int>& host_of,
                         const std::vector<std::vector<int>>& readable_by) {
  std::map<int, std::size_t> ranks_on;
  for (const int host : host_of) {
    ++ranks_on[host];
  }
  for (std::size_t reader = 0; reader < host_of.size(); ++reader) {
    const int host = host_of[reader];
    const auto others = std::ranges::count_if(readable_by[reader], [&](int rank) {
      return rank != static_cast<int>(reader) && host_of[static_cast<std::size_t>(rank)] == host;
    });
    if (static_cast<std::size_t>(others) + 1 != ranks_on[host]) {
      return false;
    }
  }
  return true;
}

}  // namespace sprat::comm
