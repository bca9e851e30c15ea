// Walks and reads the source tree.
#include "tests/architecture/source_tree.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

namespace sprat::architecture {
namespace fs = std::filesystem;

namespace {

const std::set<std::string>& top_folders() {
  static const std::set<std::string> folders = {
      "include", "comm", "planning", "io",       "collectives", "device",
      "memory",  "gemm", "layers",   "fsdp",     "mp",          "checkpoint",
      "plugins", "cli",  "train",    "examples", "bench",       "tests"};
  return folders;
}

}  // namespace

fs::path source_root() { return SPRAT_SOURCE_DIR; }

std::vector<SourceFile> source_files() {
  static const std::set<std::string> extensions = {".h", ".hpp", ".cpp", ".cu", ".c", ".def"};
  std::vector<SourceFile> files;
  for (const std::string& folder : top_folders()) {
    for (const auto& entry : fs::recursive_directory_iterator(source_root() / folder)) {
      if (!entry.is_regular_file() || !extensions.contains(entry.path().extension().string())) {
        continue;
      }
      SourceFile file{.path = entry.path().lexically_relative(source_root()).generic_string(),
                      .lines = {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        file.lines.push_back(line);
      }
      files.push_back(std::move(file));
    }
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

std::map<std::string, std::set<std::string>> entries_of_folders() {
  std::map<std::string, std::set<std::string>> entries;
  for (const std::string& top : top_folders()) {
    fs::recursive_directory_iterator entry(source_root() / top);
    for (; entry != fs::recursive_directory_iterator(); ++entry) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with(".") || name == "__pycache__") {  // of tools, not of ours
        entry.disable_recursion_pending();
        continue;
      }
      const fs::path path = entry->path().lexically_relative(source_root());
      entries[path.parent_path().generic_string()].insert(name);
    }
  }
  return entries;
}

std::vector<std::string> stems(const std::string& folder, const std::string& extension) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(source_root() / folder)) {
    if (entry.path().extension() == extension) {
      names.push_back(entry.path().stem().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace sprat::architecture
