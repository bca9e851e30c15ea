// A FUSE file system that shows a folder as Lustre would: `lustre.lov` of NAME comes from
// .lov/NAME, HSM states (32 bytes) from .hsm/NAME, and the first read of a released file waits,
// then brings it back. If its state says that the archive has lost it, the read fails; if
// .stuck/NAME is there, the read waits until whoever reads is killed. Where BACKING has a file
// .throughput, "BASE BURST CREDIT", all reads together get BURST bytes a second until they took
// CREDIT bytes more than BASE gives, and BASE from then on, as FSx does.
//   mock_lustre BACKING MOUNT_POINT -f
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace {

std::string backing;  // FUSE's callbacks have no other place for it that is simpler

constexpr unsigned int hsm_state = 0x802066d3;
constexpr char released_flag = 0x4, lost_flag = 0x40;
constexpr auto restore_takes = std::chrono::milliseconds(200);

std::string behind(const char* path) { return backing + path; }
std::string note_of(const char* folder, const char* path) { return backing + "/" + folder + path; }
/// Empty of what is no file: streams throw when a folder is read.
std::string content(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) {
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int get_attributes(const char* path, struct stat* status, fuse_file_info*) {
  if (lstat(behind(path).c_str(), status) != 0) {
    return -errno;
  }
  const std::string hsm = content(note_of(".hsm", path));
  if (!hsm.empty() && (hsm[0] & released_flag) != 0) {
    status->st_blocks = 0;  // as a released file has none
  }
  return 0;
}

int list(const char* path, void* into, fuse_fill_dir_t fill, off_t, fuse_file_info*,
         fuse_readdir_flags) {
  DIR* folder = opendir(behind(path).c_str());
  if (folder == nullptr) {
    return -errno;
  }
  while (const dirent* entry = readdir(folder)) {
    fill(into, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  }
  closedir(folder);
  return 0;
}

int open_file(const char* path, fuse_file_info* info) {
  const int descriptor = open(behind(path).c_str(), O_RDONLY | O_CLOEXEC);
  info->fh = static_cast<std::uint64_t>(descriptor);
  return descriptor < 0 ? -errno : 0;
}

/// The implicit restore: a read of a released file waits until the data are back. Reads of one file
/// may come in several at once. An errno if they do not come.
int restore_first(const char* path) {
  const std::string stuck = note_of(".stuck", path);
  while (access(stuck.c_str(), F_OK) == 0) {
    if (fuse_interrupted() != 0) {
      return EINTR;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::string hsm = content(note_of(".hsm", path));
  if (hsm.empty() || (hsm[0] & released_flag) == 0) {
    return 0;
  }
  if ((hsm[0] & lost_flag) != 0) {
    return ENODATA;
  }
  std::this_thread::sleep_for(restore_takes);
  std::error_code none;  // a file without a layout of its own keeps none
  std::filesystem::rename(note_of(".lov", path) + ".restored", note_of(".lov", path), none);
  hsm[0] = static_cast<char>(hsm[0] & ~released_flag);
  std::ofstream(note_of(".hsm", path), std::ios::binary) << hsm;
  return 0;
}

/// What the file system gives to all its readers together: one read behind the other, so that none
/// is given what another one has paid for.
class Throughput {
 public:
  Throughput() {
    std::ifstream told(backing + "/.throughput");
    limited_ =
        static_cast<bool>(told >> base_ >> burst_ >> most_credit_) && base_ > 0 && burst_ >= base_;
    credit_ = most_credit_;
  }

  /// Returns when the bytes may be given.
  void wait(double bytes) {
    if (!limited_) {
      return;
    }
    std::unique_lock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now > free_) {
      // Nobody read meanwhile, which gives back what the base would have carried.
      const double idle = std::chrono::duration<double>(now - free_).count();
      credit_ = std::min(most_credit_, credit_ + idle * base_);
      free_ = now;
    }
    const double seconds = bytes / (credit_ > 0 ? burst_ : base_);
    credit_ = std::max(0.0, credit_ - (bytes - base_ * seconds));
    free_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
    const auto until = free_;
    lock.unlock();
    std::this_thread::sleep_until(until);
  }

 private:
  bool limited_ = false;
  double base_ = 0, burst_ = 0, most_credit_ = 0;
  std::mutex mutex_;  // of what follows
  double credit_ = 0;
  std::chrono::steady_clock::time_point free_ = std::chrono::steady_clock::now();
};

int read_file(const char* path, char* into, size_t bytes, off_t offset, fuse_file_info* info) {
  if (const int error = restore_first(path)) {
    return -error;
  }
  static Throughput throughput;  // begins with the first read, when the backing folder is known
  const ssize_t got = pread(static_cast<int>(info->fh), into, bytes, offset);
  if (got > 0) {
    throughput.wait(static_cast<double>(got));
  }
  return got < 0 ? -errno : static_cast<int>(got);
}

int close_file(const char*, fuse_file_info* info) {
  close(static_cast<int>(info->fh));
  return 0;
}

int get_extended(const char* path, const char* name, char* into, size_t bytes) {
  const std::string lov = note_of(".lov", path);
  if (std::strcmp(name, "lustre.lov") != 0) {
    return -ENODATA;
  }
  if (!access(lov.c_str(), R_OK) == 0) {
    return -ENODATA;
  }
  const std::string value = content(lov);
  if (bytes == 0) {
    return static_cast<int>(value.size());
  }
  if (value.size() > bytes) {
    return -ERANGE;
  }
  std::ranges::copy(value, into);
  return static_cast<int>(value.size());
}

int control(const char* path, int request, void*, fuse_file_info*, unsigned int, void* data) {
  const std::string hsm = content(note_of(".hsm", path));
  if (static_cast<unsigned int>(request) != hsm_state || hsm.size() != 32) {
    return -ENOTTY;
  }
  std::ranges::copy(hsm, static_cast<char*>(data));
  return 0;
}

int tell_space(const char*, struct statvfs* space) {
  return statvfs(backing.c_str(), space) == 0 ? 0 : -errno;
}

/// Sizes and blocks change when a file comes back, so the kernel must not remember them.
void* begin(fuse_conn_info*, fuse_config* config) {
  config->attr_timeout = 0;
  config->entry_timeout = 0;
  config->direct_io = 1;
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "mock_lustre BACKING MOUNT_POINT [FUSE OPTIONS]\n");
    return 2;
  }
  backing = argv[1];
  argv[1] = argv[0];
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.readdir = list;
  operations.open = open_file;
  operations.read = read_file;
  operations.release = close_file;
  operations.getxattr = get_extended;
  operations.ioctl = control;
  operations.statfs = tell_space;
  operations.init = begin;
  return fuse_main(argc - 1, argv + 1, &operations, nullptr);
}
