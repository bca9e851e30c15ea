#include "comm/base/rank_list.hpp"

#include "comm/base/check.hpp"

namespace sprat::comm {

std::string list_text(std::string_view noun, const std::vector<int>& numbers) {
  constexpr int most_ranges = 16;
  if (numbers.empty()) {
    return text("no ", noun);
  }
  std::string out = text(noun, numbers.size() == 1 ? " " : "s ");
  std::size_t first = 0;
  for (int ranges = 0; first < numbers.size(); ++ranges) {
    if (ranges == most_ranges) {
      return text(out, ", and ", numbers.size() - first, " more");
    }
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    out += text(ranges == 0 ? "" : ", ", numbers[first]);
    if (last > first) {
      out += text(last == first + 1 ? ", " : "-", numbers[last]);
    }
    first = last + 1;
  }
  return out;
}

std::string ranks_text(const std::vector<int>& ranks) { return list_text("rank", ranks); }

}  // namespace sprat::comm
