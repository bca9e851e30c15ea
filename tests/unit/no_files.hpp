// What lies where a file is wanted and is none.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace sprat {

/// A pipe that nobody writes into, a device without an end, and a folder.
class NoFiles {
 public:
  NoFiles() {
    std::filesystem::create_directory(folder_);
    mkfifo((folder_ / "pipe").c_str(), 0600);
  }
  ~NoFiles() { std::filesystem::remove_all(folder_); }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;

  std::vector<std::string> paths() const { return {folder_ / "pipe", "/dev/zero", folder_}; }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("sprat_no_files_" + std::to_string(getpid()));
};

}  // namespace sprat
