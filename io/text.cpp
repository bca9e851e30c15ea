// Reading text files, plain or compressed by gzip.
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "comm/base/check.hpp"
#include "sprat/io.hpp"

namespace sprat {
namespace {

constexpr std::size_t piece_bytes = 1 << 18;

struct CloseFile {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using File = std::unique_ptr<gzFile_s, CloseFile>;

std::string reason(gzFile file) {
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  return code == Z_ERRNO ? std::strerror(errno) : message;
}

void append(const std::string& path, std::vector<std::uint8_t>& bytes) {
  errno = 0;
  const File file(gzopen(path.c_str(), "rbe"));  // reads what is not compressed as it is
  need(file != nullptr, "cannot open text file ", path, ": ", std::strerror(errno));
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + piece_bytes);
    const int got = gzread(file.get(), bytes.data() + before, piece_bytes);
    need(got >= 0, "cannot read text file ", path, ": ", got < 0 ? reason(file.get()) : "");
    bytes.resize(before + static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < piece_bytes) {
      break;
    }
  }
  int code = Z_OK;
  gzerror(file.get(), &code);
  need(code == Z_OK || code == Z_STREAM_END, "cannot read text file ", path,
       ": the compressed data ends early");
}

}  // namespace

std::vector<std::uint8_t> read_text(const std::vector<std::string>& paths) {
  std::vector<std::uint8_t> bytes;
  for (const std::string& path : paths) {
    append(path, bytes);
  }
  return bytes;
}

}  // namespace sprat
