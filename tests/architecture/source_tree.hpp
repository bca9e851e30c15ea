// The repository's files, for tests that read the code itself.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace sprat::architecture {

/// A file by its path from the repository's root, with forward slashes.
struct SourceFile {
  std::string path;
  std::vector<std::string> lines;
};

/// Every .h .hpp .cpp .cu .def .c of the folders that hold code; tests too.
std::vector<SourceFile> source_files();
/// The names in each of those folders and of the folders in them: files of any kind, and folders.
std::map<std::string, std::set<std::string>> entries_of_folders();
/// The folder of SPRAT_SOURCE_DIR.
std::filesystem::path source_root();
/// Names without their extension of the files with `extension` in a folder, sorted.
std::vector<std::string> stems(const std::string& folder, const std::string& extension);

}  // namespace sprat::architecture
