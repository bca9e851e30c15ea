// Files that others may read at any moment, and that are no use in part; and reading them whole.
#pragma once

#include <string>
#include <string_view>

namespace sprat {

/// A file that comes to be piece by piece, and is whole or as it was: nobody reads half of it, and
/// no two writers mix. A device, a pipe or a link, as /dev/stdout is one, is written into and not
/// replaced. What fails throws Error{unavailable} that begins with the path. One thread.
class WholeFile final {
 public:
  explicit WholeFile(std::string path);
  /// What was not kept is gone, and what was there stays.
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void append(std::string_view content);
  /// Once, behind all of it.
  void keep();

 private:
  [[noreturn]] void fail(int error);

  const std::string path_;
  std::string part_;  ///< Renamed in the end; empty: the path itself is written into.
  int descriptor_ = -1;
};

/// The same at once.
void write_whole_file(const std::string& path, std::string_view content);

/// All that is in a file, or comes through a pipe that is being written into, to its end. Throws
/// Error{unavailable} that names the path: it cannot be opened or read, is a folder or a device,
/// which may have no end, or longer than the memory there is, or of a pipe 1 GiB.
std::string read_whole_file(const std::string& path);

/// The same of a file that people write and that `variable` of the environment names, as errors do,
/// too: at most 64 MiB, and no pipe, which the first of several readers would empty.
std::string read_setting_file(std::string_view variable, const std::string& path);

}  // namespace sprat
