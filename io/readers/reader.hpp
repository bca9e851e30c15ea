// How bytes are asked for: a reader starts reads and tells which are done. One file each in kinds/,
// beside the table.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace sprat::io {

/// One system call's worth. `into` stays until the read is done. Where the descriptor is open for
/// direct reads, offset, length and memory are multiples of FileSystem::alignment.
struct Read {
  int descriptor = -1;  ///< Stays open until the read is done.
  std::uint64_t offset = 0;
  std::span<std::byte> into;
  std::uint64_t tag = 0;  ///< The caller's; comes back.
};

struct ReadDone {
  std::uint64_t tag = 0;
  std::size_t bytes = 0;  ///< May be fewer than asked for: the rest is asked for anew.
  int error = 0;          ///< errno's, or 0.
  std::chrono::nanoseconds took{};
  bool cached = false;  ///< It lay in the page cache, as far as the reader can tell.
};

/// One thread at a time, but for wake(); a thread that has submitted outlives its reads.
class Reader {
 public:
  virtual ~Reader() = default;  ///< Waits for what is under way.
  /// Takes it; it starts now, or with the next reap(). False if so many are under way as this
  /// reader takes: reap first.
  virtual bool submit(const Read& read) = 0;
  /// What is done, as soon as there is one, wake() was called or `longest` has passed. Sleeps
  /// meanwhile.
  virtual std::vector<ReadDone> reap(std::chrono::nanoseconds longest) = 0;
  /// Makes a reap() return, the one that waits or the next. From any thread.
  virtual void wake() = 0;
};

/// What a probe found out about where a file lies.
struct FileSystem {
  std::string_view kind;        ///< "lustre", "tmpfs", "ext", "overlay" ...
  bool takes_direct = false;    ///< O_DIRECT works here.
  std::uint32_t alignment = 1;  ///< Of offset, length and memory of direct reads.
  /// Reads can be tried without waiting for storage. Where not, io_uring hands each to a thread of
  /// the kernel's.
  bool tries_reads = false;
  bool tells_cached = false;  ///< The kernel tells what of a file lies in the page cache.
  int uring_error = 0;        ///< Why this process gets no io_uring: errno's, or 0.
};

struct ReaderOptions {
  int depth = 16;       ///< Reads under way at most.
  int threads = 4;      ///< Of readers that have some; they sleep in reads.
  bool direct = false;  ///< Descriptors are open for direct reads.
};

struct ReaderKind {
  std::string_view name;   ///< As users type it: "pool".
  std::string_view about;  ///< One sentence of --help.
  /// Empty if files of this system can be read by it; else why not.
  std::string_view (*refusal)(const FileSystem& where);
  /// Throws Error{invalid_argument, unavailable}.
  std::unique_ptr<Reader> (*open)(const ReaderOptions& options);
};

/// In the order of preference: the first without a refusal is chosen.
std::span<const ReaderKind* const> all_reader_kinds() noexcept;
/// Throws Error{invalid_argument} with the names there are.
const ReaderKind& reader_kind_named(std::string_view name);

}  // namespace sprat::io
