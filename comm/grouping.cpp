#include "comm/grouping.hpp"

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
  for (const auto& entry : by_label) {  // named, for clang 14 captures no structured binding
    const std::vector<int>& members = entry.second;
    shares[entry.first] = std::all_of(members.begin(), members.end(), [&](int rank) {
      const auto& mapped = reaches[rank].mapped;
      return std::all_of(members.begin(), members.end(), [&](int peer) {
        return std::find(mapped.begin(), mapped.end(), peer) != mapped.end();
      });
    });
  }
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

}  // namespace sprat::comm
