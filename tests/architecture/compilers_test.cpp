// The fuzzers are built with clang 14, which no other build uses. It cannot compile the views of
// libstdc++ 12, nor its range algorithms that return a subrange; g++ can, and so the fuzzers stop
// building without anybody hearing of it.
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

/// What of a line clang 14 cannot compile, or nothing.
std::string refused_by_clang(const std::string& line) {
  static const std::regex views(R"(\bviews::\w+)");
  static const std::regex subranges(
      R"(\branges::(unique|remove|remove_if|partition|stable_partition|rotate|equal_range|search|search_n|find_end)\()");
  std::smatch found;
  const std::string code = line.substr(0, line.find("//"));
  return std::regex_search(code, found, views) || std::regex_search(code, found, subranges)
             ? found.str()
             : "";
}

TEST(Compilers, clang_14_can_compile_every_source) {
  for (const SourceFile& file : source_files()) {
    if (file.path.ends_with("compilers_test.cpp")) {
      continue;
    }
    for (std::size_t at = 0; at < file.lines.size(); ++at) {
      const std::string refused = refused_by_clang(file.lines[at]);
      EXPECT_EQ(refused, "") << file.path << ":" << at + 1
                             << ": use the algorithm of two iterators, or a loop";
    }
  }
}

TEST(Compilers, what_clang_14_refuses_is_found) {
  EXPECT_EQ(refused_by_clang("v.erase(std::ranges::unique(v).begin(), v.end());"),
            "ranges::unique(");
  EXPECT_EQ(refused_by_clang("for (int i : v | std::views::reverse) {"), "views::reverse");
  EXPECT_EQ(refused_by_clang("std::ranges::sort(v);  // not views::all"), "");
}

}  // namespace
}  // namespace sprat::architecture
