#include "comm/status/status_search.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/owned_descriptor.hpp"
#include "comm/status/status_page.hpp"

namespace sprat::comm::status {
namespace {

namespace fs = std::filesystem;

/// Those of a process's descriptors that are a page, as paths under /proc.
std::vector<fs::path> page_files(pid_t pid, std::error_code& error) {
  // A memfd has no name in any folder, which the kernel shows as deleted.
  const std::string link = text("/memfd:", memfd_name, " (deleted)");
  std::vector<fs::path> files;
  fs::directory_iterator at(text("/proc/", pid, "/fd"), error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;  // a descriptor may be closed while we look
    if (fs::read_symlink(at->path(), gone) == link && !gone) {
      files.push_back(at->path());
    }
  }
  return files;
}

}  // namespace

std::optional<Reader> Reader::map(int fd) {
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS);
  // Without the seal the file could shrink while it is read, which would end this process by
  // SIGBUS.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) != 0 || status.st_size <= 0) {
    return std::nullopt;
  }
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return std::nullopt;
  }
  return Reader(static_cast<const std::byte*>(data), bytes);
}

// Between our look at the link and this call the process may have closed the descriptor, and its
// number may mean a pipe or a terminal by now: open() must not wait for the other end of the one,
// nor make the other the terminal of this process.
std::optional<Reader> Reader::open(const char* path) {
  const OwnedDescriptor page = open_to_read(path);
  return page.open() ? map(page.number()) : std::nullopt;
}

Reader::~Reader() {
  if (data_ != nullptr) {
    munmap(const_cast<std::byte*>(data_), bytes_);
  }
}

Reader::Reader(Reader&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

std::vector<Reader> pages_of(pid_t pid) {
  std::error_code error;
  const std::vector<fs::path> files = page_files(pid, error);
  need(!error, "cannot see the descriptors of process ", pid, ": ", error.message());
  std::vector<Reader> pages;
  for (const fs::path& file : files) {
    if (auto page = Reader::open(file.c_str())) {
      pages.push_back(std::move(*page));
    }
  }
  return pages;
}

std::vector<pid_t> processes_with_pages() {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    std::error_code hidden;  // other users' processes
    if (error == std::errc{} && *end == '\0' && !page_files(pid, hidden).empty()) {
      found.push_back(pid);
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace sprat::comm::status
