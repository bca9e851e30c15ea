// Files are told apart by their device, which fstat gives for nothing: what a mount is, the kernel
// and mountinfo are asked once.
#include "io/loader/lustre/lustre_mounts.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "io/lustre/layout.hpp"

namespace sprat::io {

ProbedFile::~ProbedFile() {
  if (opened_.descriptor >= 0) {
    ::close(opened_.descriptor);
  }
}

const LustreMount* LustreMounts::of(std::uint64_t device, int descriptor, const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = mounts_.find(device); known != mounts_.end()) {
      return known->second.get();
    }
  }
  // Without the lock: a file system that does not answer holds back only who asks about it.
  // mountinfo names places without links.
  std::error_code none;
  const std::filesystem::path plain = std::filesystem::canonical(path, none);
  StorageFound found = detect_storage(probe_->status(descriptor), probe_->mountinfo(),
                                      none ? path : plain.string(), declared_);
  const std::lock_guard lock(mutex_);
  if (const auto known = mounts_.find(device); known != mounts_.end()) {
    return known->second.get();  // two asked at once
  }
  std::unique_ptr<const LustreMount> mount;
  if (found.lustre) {
    mount = std::make_unique<const LustreMount>(
        LustreMount{.number = lustres_++, .point = found.mount_point, .found = std::move(found)});
  }
  return mounts_.emplace(device, std::move(mount)).first->second.get();
}

FileLook look_at_file(LustreMounts& mounts, const std::string& path) {
  const ProbedFile file(*mounts.probe(), path);
  if (file.error() != 0) {
    return {.error = file.error()};
  }
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) {
    return {.error = errno};
  }
  FileLook looked{.mount = mounts.of(status.st_dev, file.descriptor(), path)};
  if (looked.mount != nullptr) {
    const FileSize size{.bytes = static_cast<std::uint64_t>(status.st_size),
                        .blocks = static_cast<std::uint64_t>(status.st_blocks)};
    looked.released =
        examine_lustre_file(*mounts.probe(), file.descriptor(), size, unknown_target).released;
  }
  return looked;
}

}  // namespace sprat::io
