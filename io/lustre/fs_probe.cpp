#include "io/lustre/fs_probe.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "comm/base/check.hpp"
#include "io/lustre/detection.hpp"

namespace sprat::io {
namespace {

// What the kernel allows an attribute to be.
constexpr std::size_t most_attribute_bytes = 65536;

std::string whole_text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class KernelProbe final : public FsProbe {
 public:
  FileSystemStatus status(int descriptor) const override {
    struct statfs found {};  // an unknown file system is one, no error
    if (fstatfs(descriptor, &found) != 0) {
      return {};
    }
    const auto block = static_cast<std::uint64_t>(found.f_bsize);
    return {.magic = static_cast<std::uint32_t>(found.f_type),
            .bytes = found.f_blocks * block,
            .free_bytes = found.f_bavail * block};
  }

  ProbeAnswer attribute(int descriptor, const std::string& name) const override {
    ProbeAnswer answer{.error = 0, .bytes = std::vector<std::byte>(most_attribute_bytes)};
    const ssize_t bytes =
        fgetxattr(descriptor, name.c_str(), answer.bytes.data(), answer.bytes.size());
    answer.error = bytes < 0 ? errno : 0;
    answer.bytes.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    return answer;
  }

  ProbeAnswer control(int descriptor, unsigned long request,
                      std::span<const std::byte> argument) const override {
    ProbeAnswer answer{.error = 0, .bytes = {argument.begin(), argument.end()}};
    answer.error = ioctl(descriptor, request, answer.bytes.data()) < 0 ? errno : 0;
    return answer;
  }

  ProbeOpened open(const std::string& path) const override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    return {.descriptor = descriptor, .error = descriptor < 0 ? errno : 0};
  }

  std::string mountinfo() const override { return whole_text_of("/proc/self/mountinfo"); }
  std::string sysfs_root() const override { return "/sys"; }
};

/// For trials of whole programs where there is no Lustre: what lies on the folder's device is
/// Lustre's, layouts may be in an attribute that any file system keeps, and sysfs is a folder.
class FakeLustre final : public FsProbe {
 public:
  explicit FakeLustre(const std::string& folder)
      : folder_(std::filesystem::canonical(folder).string()) {
    struct stat found {};
    need(::stat(folder_.c_str(), &found) == 0, "SPRAT_FAKE_LUSTRE names ", folder,
         ", of which nothing can be told");
    device_ = found.st_dev;
  }

  FileSystemStatus status(int descriptor) const override {
    FileSystemStatus status = kernel_.status(descriptor);
    struct stat found {};
    if (fstat(descriptor, &found) == 0 && found.st_dev == device_) {
      status.magic = lustre_magic;
    }
    return status;
  }

  ProbeAnswer attribute(int descriptor, const std::string& name) const override {
    ProbeAnswer answer = kernel_.attribute(descriptor, name);
    // Through FUSE the real name may be served, so the other one is second.
    if (answer.error == EOPNOTSUPP) {
      answer = kernel_.attribute(descriptor, "user." + name);
    }
    return answer;
  }

  std::string mountinfo() const override {
    const std::string own = whole_text_of(folder_ + "/.mountinfo");
    return kernel_.mountinfo() +
           (own.empty() ? "1 1 0:0 / " + folder_ + " rw - lustre 10.0.0.1@tcp:/fake rw\n" : own);
  }
  std::string sysfs_root() const override { return folder_ + "/.sys"; }

  ProbeAnswer control(int descriptor, unsigned long request,
                      std::span<const std::byte> argument) const override {
    return kernel_.control(descriptor, request, argument);
  }
  ProbeOpened open(const std::string& path) const override { return kernel_.open(path); }

 private:
  KernelProbe kernel_;
  std::string folder_;
  dev_t device_ = 0;
};

}  // namespace

std::unique_ptr<FsProbe> system_probe(const std::string& fake_lustre) {
  if (fake_lustre.empty()) {
    return std::make_unique<KernelProbe>();
  }
  require(std::filesystem::is_directory(fake_lustre), "SPRAT_FAKE_LUSTRE is \"", fake_lustre,
          "\", which is no folder");
  return std::make_unique<FakeLustre>(fake_lustre);
}

}  // namespace sprat::io
