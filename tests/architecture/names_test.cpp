// Files of a target are compiled several at once, in batches that shift with each new file. Two
// that give one name to two functions may then not compile, or call each other's without a word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/architecture/outline.hpp"
#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

/// "comm", "tests/unit/comm"; empty of what is no part of a library or of its tests, and of files
/// that are compiled alone: their CMakeLists.txt says why.
std::string target_of(const SourceFile& file) {
  const std::string& path = file.path;
  const bool once_per_target = std::ranges::any_of(file.lines, [](const std::string& line) {
    return line.find("hwy/foreach_target.h") != line.npos;
  });
  if (!path.ends_with(".cpp") || once_per_target || path.starts_with("collectives/algorithms/") ||
      path == "cli/io/convert/parquet.cpp" || path.find("/libfuzzer/") != path.npos) {
    return "";
  }
  const std::string unit = "tests/unit/";
  if (path.starts_with(unit)) {
    return path.substr(0, path.find('/', unit.size()));
  }
  const std::string folder = path.substr(0, path.find('/'));
  static const std::set<std::string> others = {"bench", "examples", "plugins", "tests"};
  return others.contains(folder) ? "" : folder;
}

/// Of "std::string text_of": "text_of"; empty of a member of a class.
std::string function_of(const std::string& head) {
  static const std::regex free(R"((?:^|[\s*&>])([a-z_]\w*)\s*$)");
  std::smatch match;
  return std::regex_search(head, match, free) ? match[1].str() : "";
}

TEST(Names, of_functions_are_those_behind_what_they_return) {
  EXPECT_EQ(function_of("std::string text_of"), "text_of");
  EXPECT_EQ(function_of("const Part& part_of"), "part_of");
  EXPECT_EQ(function_of("std::vector<int>part_of"), "part_of");
  EXPECT_EQ(function_of("void Queue::push"), "");
}

TEST(Names, of_functions_that_a_file_keeps_for_itself_are_its_own) {
  using Files = std::map<std::string, std::size_t>;  // and the line
  std::map<std::pair<std::string, std::string>, Files> found;
  for (const SourceFile& file : source_files()) {
    const std::string target = target_of(file);
    if (target.empty()) {
      continue;
    }
    const std::vector<std::string> spaces = spaces_of(file);
    for (const DefinedFunction& function : outline_of(file).functions) {
      const std::string& space = spaces[function.line - 1];
      const std::string name = function_of(function.head);
      const bool member = file.lines[function.line - 1].starts_with(' ');
      if (space.ends_with("(anonymous)::") && !member && !name.empty() && name != "operator") {
        found[{target, space + name}].emplace(file.path, function.line);
      }
    }
  }
  EXPECT_GT(found.size(), 2000u);
  for (const auto& [name, files] : found) {
    EXPECT_EQ(files.size(), 1u) << name.second << " is a function of " << files.begin()->first
                                << ":" << files.begin()->second << " and another one of "
                                << files.rbegin()->first << ":" << files.rbegin()->second
                                << "; give one of them a name of its own";
  }
}

}  // namespace
}  // namespace sprat::architecture
