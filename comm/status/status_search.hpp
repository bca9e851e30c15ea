// Where the status pages of other processes are.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace sprat::comm::status {

/// A process's page, mapped to be read. Its bytes are foreign.
class Reader {
 public:
  /// Nothing if it cannot be mapped, or could shrink: reading past its end would end this process.
  static std::optional<Reader> map(int fd);
  /// As map(), of what lies at the path, whatever that is. Does not wait.
  static std::optional<Reader> open(const char* path);
  std::span<const std::byte> bytes() const { return {data_, bytes_}; }

  ~Reader();
  Reader(Reader&& other) noexcept;
  Reader(const Reader&) = delete;

 private:
  Reader(const std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  const std::byte* data_;
  std::size_t bytes_;
};

/// A page for each rank that the process is. Throws Error{unavailable} if its descriptors cannot be
/// seen: there is no such process, or it is another user's.
std::vector<Reader> pages_of(pid_t pid);
/// The processes whose descriptors this user may see, and that have a page; ascending.
std::vector<pid_t> processes_with_pages();

}  // namespace sprat::comm::status
