// From where a block is read fastest, by what reading took so far. Pure.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sprat::io {

/// In the order in which equally fast ones are preferred.
enum class BlockSource : std::uint8_t { host_cache, peer, file_system };
inline constexpr std::size_t block_sources = 3;

/// Where a block lies beside the file system, which has all of them.
struct BlockPlaces {
  bool host_cache = false, peer = false;

  friend bool operator==(const BlockPlaces&, const BlockPlaces&) = default;
};

/// The rule of NoPFS (Dryden et al. 2021): of the sources that have the block the one that takes
/// least, where what a source takes is the least of what each part of the way gives: for the file
/// system its throughput over the hosts that read, and this host's way to it; for a peer its cache
/// and the wire. There these rates are measured beforehand; here each source's own is, as a whole
/// and while the job runs. One thread at a time.
class SourceChoice {
 public:
  /// A source that was never measured is taken for faster than any other, once it has the block.
  /// One choice in 64 goes to a slower source that has it, which may have become faster.
  BlockSource choose(const BlockPlaces& places) noexcept;
  /// A read of `bytes` ended; `under_way` reads of this source shared its rate.
  void measured(BlockSource source, std::uint64_t bytes, std::chrono::nanoseconds took,
                std::size_t under_way) noexcept;
  /// It gave nothing: its reads took as long as that, for no bytes.
  void failed(BlockSource source, std::chrono::nanoseconds took) noexcept;
  /// Bytes a second of all reads together; nothing before the first.
  std::optional<double> rate(BlockSource source) const noexcept;

 private:
  struct Measure {
    double bytes = 0, seconds = 0;  // older reads count less
    std::uint64_t choice = 0;       // when it was last added to
  };
  static std::size_t index(BlockSource source) { return static_cast<std::size_t>(source); }
  void add(BlockSource source, double bytes, double seconds) noexcept;

  std::array<Measure, block_sources> measures_{};
  std::uint64_t choices_ = 0;
};

}  // namespace sprat::io
