// A class lives in one source: who reads it should find all of it there.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/architecture/outline.hpp"
#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

/// Facades whose verbs are thin: a source for each kind of verb. What a Communicator owns is made
/// in the sources of the verbs that make it.
const std::set<std::string> facades = {"sprat::Communicator", "sprat::Communicator::Impl",
                                       "sprat::DeviceLane", "sprat::pytorch::Backend"};

bool is_shipped(const std::string& path) {
  return !path.starts_with("tests/") && !path.starts_with("bench/") &&
         !path.starts_with("examples/");
}

/// Of "void A::B::verb": "A::B"; empty of a function that is no class's. Classes begin with a
/// capital letter, and namespaces do not.
std::string class_of(const std::string& head) {
  static const std::regex member(
      R"((?:^|[\s*&])((?:\w+::)*[A-Z]\w*)::(?:~?\w+|operator[^:]+)\s*$)");
  std::smatch match;
  return std::regex_search(head, match, member) ? match[1].str() : "";
}

/// By class, the sources that define its functions.
std::map<std::string, std::set<std::string>> sources_of_classes() {
  std::map<std::string, std::set<std::string>> sources;
  for (const SourceFile& file : source_files()) {
    if (!is_shipped(file.path) || !file.path.ends_with(".cpp")) {
      continue;
    }
    const std::vector<std::string> spaces = spaces_of(file);
    for (const DefinedFunction& function : outline_of(file).functions) {
      if (const std::string owner = class_of(function.head); !owner.empty()) {
        sources[spaces[function.line - 1] + owner].insert(file.path);
      }
    }
  }
  return sources;
}

TEST(Classes, are_named_before_their_functions) {
  EXPECT_EQ(class_of("void Queue::push"), "Queue");
  EXPECT_EQ(class_of("Queue::~Queue"), "Queue");
  EXPECT_EQ(class_of("std::unique_ptr<Queue::Impl> Queue::Impl::make"), "Queue::Impl");
  EXPECT_EQ(class_of("Queue& Queue::operator="), "Queue");
  EXPECT_EQ(class_of("Queue::Entry first_of"), "");
  EXPECT_EQ(class_of("std::string text_of"), "");
}

TEST(Classes, live_in_one_source) {
  const auto sources = sources_of_classes();
  EXPECT_GT(sources.size(), 150u);
  for (const auto& [name, files] : sources) {
    if (!facades.contains(name)) {
      EXPECT_EQ(files.size(), 1u) << name << " lies in " << *files.begin() << " and "
                                  << *files.rbegin();
    }
  }
  for (const std::string& facade : facades) {
    const auto found = sources.find(facade);
    EXPECT_TRUE(found != sources.end() && found->second.size() > 1)
        << facade << " does not lie in several sources: take it off the list";
  }
}

}  // namespace
}  // namespace sprat::architecture
