// The Lustre file systems that a loader's files lie on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "io/capacity/fsx.hpp"
#include "io/lustre/detection.hpp"
#include "io/lustre/fs_probe.hpp"

namespace sprat::io {

struct LustreMount {
  int number = 0;      ///< Among those of the loader, in the order in which they were met.
  std::string point;   ///< Empty if mountinfo does not tell.
  StorageFound found;  ///< As the kernel and the user say.
};

/// Any thread, several at once.
class LustreMounts final {
 public:
  /// `declared`: what the user says of the file system.
  LustreMounts(std::shared_ptr<const FsProbe> probe, std::optional<FsxSystem> declared)
      : probe_(std::move(probe)), declared_(std::move(declared)) {}

  const std::shared_ptr<const FsProbe>& probe() const noexcept { return probe_; }
  /// Of an open file at `path` on that device (stat's st_dev); null if it is no Lustre. Each device
  /// is asked about once. The mount stays where it is.
  const LustreMount* of(std::uint64_t device, int descriptor, const std::string& path);

 private:
  const std::shared_ptr<const FsProbe> probe_;
  const std::optional<FsxSystem> declared_;
  std::mutex mutex_;                                                    // guards what follows
  std::map<std::uint64_t, std::unique_ptr<const LustreMount>> mounts_;  // by device; null: others
  int lustres_ = 0;
};

/// What Lustre says of a file that was opened for this question alone.
struct FileLook {
  int error = 0;                       ///< errno's, if it could not be opened.
  const LustreMount* mount = nullptr;  ///< Null if it is not on Lustre.
  bool released = false;
};
/// Opens the file by its path, and closes it. May wait for the metadata server.
FileLook look_at_file(LustreMounts& mounts, const std::string& path);

/// A descriptor that a probe opened.
class ProbedFile final {
 public:
  ProbedFile(const FsProbe& probe, const std::string& path) : opened_(probe.open(path)) {}
  ~ProbedFile();
  ProbedFile(const ProbedFile&) = delete;
  ProbedFile& operator=(const ProbedFile&) = delete;
  int descriptor() const noexcept { return opened_.descriptor; }
  int error() const noexcept { return opened_.error; }  ///< errno's, or 0.

 private:
  ProbeOpened opened_;
};

}  // namespace sprat::io
