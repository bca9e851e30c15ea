// Asio costs each source that sees it a second or more to compile, so only those see it that use
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

/// Folders and files that use it: all that speaks with the coordinator over sockets.
const std::vector<std::string> asio_users = {
    "comm/coordinator/",
    "comm/host/process_watch.",
    "comm/bootstrap/coordinator_search.",
    "comm/bootstrap/rendezvous_tcp.cpp",
    "comm/bootstrap/rendezvous_in_process.cpp",
    "comm/survival/survivor_listener.cpp",
};

/// Tests and benchmarks may see it for what they look at.
bool may_see_asio(const std::string& path) {
  return path.starts_with("tests/") || path.starts_with("bench/") ||
         std::ranges::any_of(asio_users,
                             [&](const std::string& user) { return path.starts_with(user); });
}

/// What each file includes, with ours by their path from the root.
std::map<std::string, std::vector<std::string>> all_includes() {
  static const std::regex directive(R"(^\s*#\s*include\s+["<]([^">]+)[">].*)");
  std::map<std::string, std::vector<std::string>> includes;
  for (const SourceFile& file : source_files()) {
    std::vector<std::string>& of_file = includes[file.path];
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (line.find("include") != std::string::npos && std::regex_match(line, match, directive)) {
        const std::string header = match[1].str();
        of_file.push_back(header.starts_with("sprat/") ? "include/" + header : header);
      }
    }
  }
  return includes;
}

/// The files that include Asio, or a file that sees it.
std::set<std::string> files_that_see_asio() {
  const auto includes = all_includes();
  std::set<std::string> seeing;
  // One round for each step of the longest way; the last one finds nothing new.
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [path, headers] : includes) {
      const bool sees = std::ranges::any_of(headers, [&](const std::string& header) {
        return header.starts_with("boost/asio") || seeing.contains(header);
      });
      grows |= sees && seeing.insert(path).second;
    }
  }
  return seeing;
}

TEST(Architecture, only_sources_that_use_asio_see_it) {
  const std::set<std::string> seeing = files_that_see_asio();
  for (const std::string& path : seeing) {
    EXPECT_TRUE(may_see_asio(path))
        << path
        << " sees boost/asio through what it includes and is none of its users: have it include "
           "less";
  }
  for (const std::string& user : asio_users) {
    EXPECT_TRUE(std::ranges::any_of(
        seeing, [&](const std::string& path) { return path.starts_with(user); }))
        << user << " does not use boost/asio any more";
  }
}

}  // namespace
}  // namespace sprat::architecture
