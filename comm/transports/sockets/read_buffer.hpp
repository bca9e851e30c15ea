// Memory for what comes before it is known where it belongs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sprat::comm::sockets {

/// Begins in the midst of a page. Processors tell a load from the stores before it by the lower 12
/// bits of their addresses: a copy to a little further into a page than it comes from takes several
/// times as long, and most memory of users begins where a page does.
class ReadBuffer {
 public:
  explicit ReadBuffer(std::size_t bytes) : memory_(bytes + 2 * page_bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::size_t to_page = (page_bytes - address % page_bytes) % page_bytes;
    span_ = std::span(memory_).subspan(to_page + page_bytes / 2, bytes);
  }
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  std::span<std::byte> span() noexcept { return span_; }

 private:
  static constexpr std::size_t page_bytes = 4096;
  std::vector<std::byte> memory_;
  std::span<std::byte> span_;
};

}  // namespace sprat::comm::sockets
