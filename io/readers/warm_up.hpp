// Whole files into the page cache, in the order of their bytes: a thread beside a loader whose own
// order jumps.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "io/readers/open_files.hpp"

namespace sprat::io {

/// Of `parts` processes that divide the same files, what this one reads.
struct WarmUpShare {
  std::uint64_t part = 0, parts = 1;
};

struct WarmUpPiece {
  std::uint32_t file = 0;
  std::uint64_t offset = 0, bytes = 0;

  friend bool operator==(const WarmUpPiece&, const WarmUpPiece&) = default;
};

inline constexpr std::uint64_t warm_up_piece_bytes = std::uint64_t{1} << 20;

/// Pure: every byte of the files lies in a piece of one part. sizes: of files, in bytes.
std::vector<WarmUpPiece> warm_up_pieces(const std::vector<std::uint64_t>& sizes, WarmUpShare share);

/// Begins when it is made, and ends by itself. An error of a file ends it without a word: who reads
/// the file meets the same one, and can say what for.
class WarmUp final {
 public:
  WarmUp(OpenFiles::Known known, std::vector<WarmUpPiece> pieces);
  /// Waits for two pieces at most.
  ~WarmUp();
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  void run(const OpenFiles::Known& known, const std::vector<WarmUpPiece>& pieces) noexcept;

  std::atomic<bool> stop_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace sprat::io
