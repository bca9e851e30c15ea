#include "collectives/pull.hpp"

#include <cstring>

namespace sprat::collectives {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t streams = 4;
// Shorter copies end before the streams pay.
constexpr std::size_t least_bytes = 16 << 10;

}  // namespace

void pull(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::size_t done = 0;
  if (bytes >= least_bytes) {
    const std::size_t stream_bytes = bytes / streams / line_bytes * line_bytes;
    for (std::size_t line = 0; line < stream_bytes; line += line_bytes) {
      for (std::size_t stream = 0; stream < streams; ++stream) {
        const std::size_t at = stream * stream_bytes + line;
        std::memcpy(to + at, from + at, line_bytes);
      }
    }
    done = streams * stream_bytes;
  }
  if (done < bytes) {
    std::memcpy(to + done, from + done, bytes - done);
  }
}

}  // namespace sprat::collectives
