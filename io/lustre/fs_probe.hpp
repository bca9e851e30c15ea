// What is asked of the kernel about a file system: a seam, so that tests answer in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sprat::io {

struct FileSystemStatus {
  std::uint32_t magic = 0;  ///< statfs's f_type, as 32 bits: it is signed on some machines.
  std::uint64_t bytes = 0, free_bytes = 0;
};

struct ProbeAnswer {
  int error = 0;  ///< errno's, or 0.
  std::vector<std::byte> bytes = {};
};

struct ProbeOpened {
  int descriptor = -1;  ///< The caller closes it.
  int error = 0;
};

/// Any thread may ask.
class FsProbe {
 public:
  virtual ~FsProbe() = default;
  /// Of an open file. All zero if the kernel does not say.
  virtual FileSystemStatus status(int descriptor) const = 0;
  /// An extended attribute, whole.
  virtual ProbeAnswer attribute(int descriptor, const std::string& name) const = 0;
  /// An ioctl that reads `argument` and may change it.
  virtual ProbeAnswer control(int descriptor, unsigned long request,
                              std::span<const std::byte> argument) const = 0;
  /// For reading; a folder, too.
  virtual ProbeOpened open(const std::string& path) const = 0;
  /// The text of /proc/self/mountinfo.
  virtual std::string mountinfo() const = 0;
  /// "/sys".
  virtual std::string sysfs_root() const = 0;
};

/// Asks the kernel. `fake_lustre` (Config::fake_lustre) is empty, or a folder that is taken for a
/// mount of Lustre.
std::unique_ptr<FsProbe> system_probe(const std::string& fake_lustre);

}  // namespace sprat::io
