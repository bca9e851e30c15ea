#include "io/checked_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/memory_room.hpp"

namespace sprat::io {
namespace {

[[noreturn]] void refuse(std::string_view what, const std::string& path, int error) {
  throw Error(ErrorCode::unavailable, text("cannot ", what, " ", path, ": ", std::strerror(error)));
}

std::int64_t modification_of(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

bool is_whole(std::span<const std::byte> bytes, std::uint64_t checksum) {
  return XXH3_64bits(bytes.data(), bytes.size()) == checksum;
}

}  // namespace

ReadFile::ReadFile(std::string path)
    : path_(std::move(path)), file_(comm::open_to_read(path_.c_str())) {
  if (!file_.open()) {
    refuse("open", path_, errno);
  }
  struct stat status {};
  if (fstat(file_.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    need(S_ISDIR(status.st_mode), "cannot read ", path_, ": it is a pipe or a device, no file");
    refuse("read", path_, EISDIR);
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  modified_ns_ = modification_of(status);
}

bool ReadFile::is_unchanged() const {
  struct stat status {};
  return fstat(file_.number(), &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) == bytes_ &&
         modification_of(status) == modified_ns_;
}

void ReadFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    // pread() may give less than was asked for, and a signal may interrupt it.
    const ssize_t got = pread(file_.number(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      refuse("read", path_, errno);
    }
    need(got > 0, path_, " ends at byte ", offset, ", before what is to be read from it");
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

std::string read_whole(const std::string& path, std::uint64_t longest) {
  const ReadFile file(path);
  // The length is bounded before memory is made for it.
  need(file.bytes() <= longest, path, " has ", file.bytes(), " bytes; such files have at most ",
       longest);
  // A file with holes may be longer than all memory.
  comm::need_memory(file.bytes(), path.c_str());
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

CheckedFile::CheckedFile(std::string path, const FileRecord& record)
    : file_(std::move(path)), record_(record) {
  need(file_.bytes() == record_.bytes, file_.path(), " has ", file_.bytes(),
       " bytes, and was written with ", record_.bytes, "; it is ",
       file_.bytes() < record_.bytes ? "cut short" : "too long");
}

std::uint64_t CheckedFile::block_bytes(std::size_t block) const {
  const std::uint64_t begin = std::uint64_t{block} * checked_block_bytes;
  return std::min<std::uint64_t>(checked_block_bytes, record_.bytes - begin);
}

void CheckedFile::check(std::size_t block, std::span<const std::byte> bytes) const {
  need(is_whole(bytes, record_.blocks[block]), file_.path(), " is damaged: its bytes from ",
       std::uint64_t{block} * checked_block_bytes, " on are not those that were written (block ",
       block, ")");
}

std::span<std::byte> CheckedFile::stage(std::size_t block) {
  if (staged_ != block) {
    staged_.reset();  // should reading or the check throw, staging_ holds no block
    staging_.resize(checked_block_bytes);
    const auto bytes = std::span(staging_).first(block_bytes(block));
    file_.read(std::uint64_t{block} * checked_block_bytes, bytes);
    check(block, bytes);
    staged_ = block;
  }
  return std::span(staging_).first(block_bytes(block));
}

void CheckedFile::read(std::uint64_t offset, std::span<std::byte> into) {
  if (record_.blocks.empty()) {
    file_.read(offset, into);
    return;
  }
  need(offset + into.size() <= record_.bytes, file_.path(), " ends at byte ", record_.bytes,
       ", before what is to be read from it");
  while (!into.empty()) {
    const auto block = static_cast<std::size_t>(offset / checked_block_bytes);
    const std::uint64_t within = offset % checked_block_bytes;
    const std::size_t count = std::min<std::size_t>(into.size(), block_bytes(block) - within);
    // A checksum is of a whole block. Where less is wanted, all of it is read, checked, and kept
    // for the next read, which mostly goes on in it.
    if (count == block_bytes(block)) {
      file_.read(offset, into.first(count));
      check(block, into.first(count));
    } else {
      std::memcpy(into.data(), stage(block).data() + within, count);
    }
    into = into.subspan(count);
    offset += count;
  }
}

std::vector<std::size_t> CheckedFile::damaged_blocks() {
  std::vector<std::size_t> damaged;
  staged_.reset();
  staging_.resize(checked_block_bytes);
  for (std::size_t block = 0; block < record_.blocks.size(); ++block) {
    const auto bytes = std::span(staging_).first(block_bytes(block));
    file_.read(std::uint64_t{block} * checked_block_bytes, bytes);
    if (!is_whole(bytes, record_.blocks[block])) {
      damaged.push_back(block);
    }
  }
  return damaged;
}

}  // namespace sprat::io
