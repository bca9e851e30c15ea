#include "comm/rank_list.hpp"

#include "comm/base/check.hpp"

namespace sprat::comm {

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr int most_ranges = 16;
  if (ranks.empty()) return "no rank";
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t first = 0;
  for (int ranges = 0; first < ranks.size(); ++ranges) {
    if (ranges == most_ranges) return text(out, ", and ", ranks.size() - first, " more");
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    out += text(ranges == 0 ? "" : ", ", ranks[first]);
    if (last > first) out += text(last == first + 1 ? ", " : "-", ranks[last]);
    first = last + 1;
  }
  return out;
}

}  // namespace sprat::comm
