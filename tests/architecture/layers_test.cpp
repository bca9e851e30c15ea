// Holds the table of docs/architecture.md, who may include whom, against every #include.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

/// What a layer may include of ours, by the longest matching prefix of a path. "sprat/" is public.
struct Layer {
  std::string folder;
  std::vector<std::string> may_include;
};

// A file belongs to the first layer whose folder it lies in.
const std::vector<Layer> layers = {
    {"include/sprat/", {"sprat/"}},
    {"comm/base/", {"sprat/", "comm/base/"}},
    {"comm/", {"sprat/", "comm/"}},
    {"io/", {"sprat/", "comm/base/", "io/"}},
    {"collectives/", {"sprat/", "comm/", "io/", "collectives/"}},
    {"fsdp/", {"sprat/", "comm/", "io/", "collectives/", "fsdp/"}},
    {"mp/", {"sprat/", "comm/", "io/", "collectives/", "mp/"}},
    {"plugins/", {"sprat/", "plugins/"}},
    {"examples/", {"sprat/"}},
    {"train/", {"sprat/", "train/"}},
    // Beside the public API: the functions by which layers describe themselves.
    {"cli/",
     {"sprat/", "train/", "cli/", "comm/base/", "comm/topology.hpp", "comm/interfaces.hpp",
      "comm/transports/libfabric/provider.hpp", "collectives/planner.hpp", "collectives/tuning.hpp",
      "collectives/reduce.hpp", "collectives/flight_record.hpp", "collectives/explain.hpp",
      "collectives/cost_model.hpp", "collectives/simulator.hpp"}},
};

const Layer* layer_of(const std::string& path) {
  for (const Layer& layer : layers) {
    if (path.starts_with(layer.folder)) {
      return &layer;
    }
  }
  return nullptr;  // tests and bench may include anything
}

/// What `line` includes, if with this opening delimiter: a quote for ours, < for others'.
std::optional<std::string> included(const std::string& line, char open) {
  static const std::regex directive(R"(^\s*#\s*include\s+(["<])([^">]+)[">].*)");
  std::smatch match;
  if (line.find("include") == std::string::npos || !std::regex_match(line, match, directive) ||
      match[1].str()[0] != open) {
    return std::nullopt;
  }
  return match[2].str();
}

bool allowed(const Layer& layer, const std::string& header) {
  return std::ranges::any_of(layer.may_include,
                             [&](const auto& prefix) { return header.starts_with(prefix); });
}

TEST(Architecture, layers) {
  int checked = 0;
  for (const SourceFile& file : source_files()) {
    const Layer* layer = layer_of(file.path);
    for (const std::string& line : file.lines) {
      const auto header = included(line, '"');
      if (layer == nullptr || !header) {
        continue;
      }
      ++checked;
      EXPECT_TRUE(allowed(*layer, *header))
          << file.path << " includes \"" << *header << "\", which " << layer->folder << " may not";
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Architecture, public_headers_need_only_the_standard_library) {
  for (const SourceFile& file : source_files()) {
    if (!file.path.starts_with("include/")) {
      continue;
    }
    const bool is_c = file.path.ends_with(".h");
    for (const std::string& line : file.lines) {
      if (const auto header = included(line, '<')) {
        EXPECT_EQ(header->find('/'), std::string::npos) << file.path << ": " << line;
        EXPECT_EQ(header->ends_with(".h"), is_c) << file.path << ": " << line;
      }
    }
  }
}

TEST(Architecture, our_headers_are_included_by_their_path_from_the_root) {
  for (const SourceFile& file : source_files()) {
    for (const std::string& line : file.lines) {
      if (const auto header = included(line, '"')) {
        EXPECT_TRUE(std::filesystem::exists(source_root() / *header) ||
                    std::filesystem::exists(source_root() / "include" / *header))
            << file.path << ": " << line;
      }
    }
  }
}

TEST(Architecture, environment_is_read_in_one_file) {
  static const std::regex reads(R"(\b(getenv|secure_getenv|environ)\b)");
  for (const SourceFile& file : source_files()) {
    if (file.path.starts_with("tests/") || file.path == "comm/base/config.cpp" ||
        file.path == "cli/launcher.cpp") {  // which reads those of other processes
      continue;
    }
    for (const std::string& line : file.lines) {
      const std::string code = line.substr(0, line.find("//"));
      if (code.find("env") == std::string::npos) {
        continue;  // regular expressions are slow under sanitizers
      }
      EXPECT_FALSE(std::regex_search(code, reads)) << file.path << ": " << line;
    }
  }
}

TEST(Architecture, files_are_short) {
  constexpr std::size_t most_lines = 420;
  for (const SourceFile& file : source_files()) {
    EXPECT_LE(file.lines.size(), most_lines) << file.path;
  }
}

TEST(Architecture, files_say_what_they_are_or_their_header_does) {
  for (const SourceFile& file : source_files()) {
    ASSERT_FALSE(file.lines.empty()) << file.path;
    const std::string& first = file.lines.front();
    const bool implements =
        first == "#include \"" + file.path.substr(0, file.path.rfind('.')) + ".hpp\"";
    EXPECT_TRUE(first.starts_with("// ") || first.starts_with("/* ") || implements)
        << file.path << ": " << first;
  }
}

}  // namespace
}  // namespace sprat::architecture
