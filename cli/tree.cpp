// Draws trees with box characters.
#include "cli/tree.hpp"

#include <fmt/core.h>

#include <array>

namespace sprat::cli {
namespace {

void draw_branches(const Tree& tree, const std::string& indent, std::string& out) {
  for (const Tree& branch : tree.branches) {
    const bool last = &branch == &tree.branches.back();
    out += indent + (last ? "└─ " : "├─ ") + branch.text + '\n';
    draw_branches(branch, indent + (last ? "   " : "│  "), out);
  }
}

}  // namespace

std::string drawn(const Tree& tree) {
  std::string out = tree.text + '\n';
  draw_branches(tree, "", out);
  return out;
}

std::string ranges(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    out += out.empty() ? "" : ",";
    out += last == first ? fmt::format("{}", numbers[first])
                         : fmt::format("{}-{}", numbers[first], numbers[last]);
    first = last + 1;
  }
  return out.empty() ? "none" : out;
}

std::string readable_bytes(std::size_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) {
    value /= 1024;
  }
  const bool whole = value == static_cast<double>(static_cast<std::size_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, units[unit]);
}

}  // namespace sprat::cli
