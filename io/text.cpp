// Reading text files, plain or compressed by gzip.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "comm/base/check.hpp"
#include "sprat/io.hpp"

namespace sprat {
namespace {

constexpr int piece_bytes = 1 << 18;

struct CloseFile {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using File = std::unique_ptr<gzFile_s, CloseFile>;

std::string reason(gzFile file) {
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  return code == Z_ERRNO ? std::strerror(errno) : message;
}

void read_file(const std::string& path, const TakeText& take) {
  errno = 0;
  // O_NONBLOCK and the check below: opening a pipe would wait for somebody who writes into it, and
  // a device may have no end.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  need(descriptor >= 0, "cannot open text file ", path, ": ", std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  // zlib reads a file that is not compressed as it is. It owns the descriptor from here on.
  const File file(regular ? gzdopen(descriptor, "rb") : nullptr);
  if (file == nullptr) {
    close(descriptor);
  }
  need(!S_ISDIR(status.st_mode), "cannot read text file ", path, ": Is a directory");
  need(regular, "cannot read text file ", path, ": it is a pipe or a device, no file");
  need(file != nullptr, "cannot read text file ", path, ": out of memory");
  std::vector<std::uint8_t> piece(piece_bytes);
  for (int got = piece_bytes; got == piece_bytes;) {
    got = gzread(file.get(), piece.data(), piece_bytes);
    need(got >= 0, "cannot read text file ", path, ": ", got < 0 ? reason(file.get()) : "");
    if (got > 0) {
      take(std::span(piece).first(static_cast<std::size_t>(got)));
    }
  }
  // gzread() gives what there is of a file that was cut short; only gzerror() tells that it was.
  int code = Z_OK;
  gzerror(file.get(), &code);
  need(code == Z_OK || code == Z_STREAM_END, "cannot read text file ", path,
       ": the compressed data ends early");
}

/// What plain files hold, and of compressed ones a part.
std::size_t bytes_on_disk(const std::vector<std::string>& paths) {
  std::size_t bytes = 0;
  for (const std::string& path : paths) {
    std::error_code none;  // what is wrong with a file is told when it is read
    const std::uintmax_t size = std::filesystem::file_size(path, none);
    bytes += none ? 0 : static_cast<std::size_t>(size);
  }
  return bytes;
}

}  // namespace

void read_text(const std::vector<std::string>& paths, const TakeText& take) {
  for (const std::string& path : paths) {
    read_file(path, take);
  }
}

std::vector<std::uint8_t> read_text(const std::vector<std::string>& paths) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(bytes_on_disk(paths));  // a vector that grows has its content twice for a while
  read_text(paths, [&](std::span<const std::uint8_t> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  });
  return bytes;
}

}  // namespace sprat
