#include "io/dataset/streamed_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

// Headers that lie close together are read in large windows, since a call costs as much as some
// 100 KB. Where most of a file is jumped over, as in tars of large members, a window is small: the
// rest of it would be read for nothing.
constexpr std::size_t smallest_window = std::size_t{64} << 10;
constexpr std::size_t largest_window = std::size_t{4} << 20;
constexpr std::uint64_t far_jump = std::uint64_t{1} << 20;
/// Reads of this size go past the window.
constexpr std::size_t large_read = std::size_t{128} << 10;

std::string path_beside(const std::string& path, const std::string& name) {
  return path.substr(0, path.rfind('/') + 1) + name;  // npos + 1 is 0
}

}  // namespace

StreamedFile::StreamedFile(const std::string& path) : file_(path), next_bytes_(smallest_window) {}

void StreamedFile::fill(std::uint64_t offset) {
  const std::uint64_t end = begin_ + window_.size();
  const bool jumped = offset < begin_ || offset - end > far_jump;
  next_bytes_ = jumped ? smallest_window : next_bytes_;
  window_.resize(std::min<std::uint64_t>(next_bytes_, file_.bytes() - offset));
  begin_ = offset;
  next_bytes_ = std::min(next_bytes_ * 4, largest_window);
  try {
    file_.read(offset, window_);
  } catch (...) {
    window_.clear();  // it holds nothing of the file
    throw;
  }
}

void StreamedFile::read(std::uint64_t offset, std::span<std::byte> into) {
  need(offset <= bytes() && into.size() <= bytes() - offset, path(), " ends at byte ", bytes(),
       ", before what is to be read from it");
  if (into.size() >= large_read) {
    file_.read(offset, into);
    return;
  }
  while (!into.empty()) {
    if (offset < begin_ || offset - begin_ >= window_.size()) {
      fill(offset);
    }
    const std::size_t within = offset - begin_;
    const std::size_t count = std::min(into.size(), window_.size() - within);
    std::memcpy(into.data(), window_.data() + within, count);
    into = into.subspan(count);
    offset += count;
  }
}

std::unique_ptr<IndexedFile> StreamedFile::beside(const std::string& name) {
  const std::string other = path_beside(path(), name);
  struct stat status {};
  if (stat(other.c_str(), &status) != 0 && errno == ENOENT) {
    return nullptr;
  }
  auto file = std::make_unique<StreamedFile>(other);
  // A file that is asked for twice, for what it begins with and then for all of it, is one.
  const Companion companion{.name = name, .stamp = file->stamp()};
  if (std::ranges::find(companions_, companion) == companions_.end()) {
    companions_.push_back(companion);
  }
  return file;
}

void StreamedFile::require_unchanged() const {
  need(file_.is_unchanged(), path(), " changed while it was read: does somebody still write it?");
}

FileStamp stamp_of(const std::string& path) {
  struct stat status {};
  need(stat(path.c_str(), &status) == 0, "cannot look at ", path, ": ", std::strerror(errno));
  return stamp_from(status);
}

FileStamp stamp_from(const struct stat& status) {
  return {
      .bytes = static_cast<std::uint64_t>(status.st_size),
      .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace sprat::io
