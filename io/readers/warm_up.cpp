// Storage gives a sequence ten times faster than what is scattered over it, so files that fit into
// memory are there sooner this way than by their readers, who meet fewer and fewer blocks that are
// not.
#include "io/readers/warm_up.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

#include "comm/base/thread.hpp"

namespace sprat::io {
namespace {

/// Of pieces: more would keep the readers' own requests waiting behind them.
constexpr std::size_t most_under_way = 1;

struct PieceUnderWay {
  std::shared_ptr<const OpenFile> file;
  std::uint64_t last_byte = 0;
};

/// Until the piece's last page has come, and so, by and large, those before it.
void settle(const PieceUnderWay& piece) {
  std::byte byte{};
  [[maybe_unused]] const ssize_t got =
      pread(piece.file->descriptor(), &byte, 1, static_cast<off_t>(piece.last_byte));
}

}  // namespace

std::vector<WarmUpPiece> warm_up_pieces(const std::vector<std::uint64_t>& sizes,
                                        WarmUpShare share) {
  std::vector<WarmUpPiece> pieces;
  std::uint64_t number = 0;
  for (std::uint32_t file = 0; file < sizes.size(); ++file) {
    for (std::uint64_t offset = 0; offset < sizes[file]; offset += warm_up_piece_bytes) {
      if (number++ % share.parts == share.part) {
        pieces.push_back({.file = file,
                          .offset = offset,
                          .bytes = std::min(warm_up_piece_bytes, sizes[file] - offset)});
      }
    }
  }
  return pieces;
}

WarmUp::WarmUp(OpenFiles::Known known, std::vector<WarmUpPiece> pieces)
    : thread_(start_thread("reading whole files ahead",
                           [this, known = std::move(known), pieces = std::move(pieces)] {
                             run(known, pieces);
                             ended_.store(true, std::memory_order_release);
                           })) {}

WarmUp::~WarmUp() {
  stop_.store(true, std::memory_order_relaxed);  // it guards nothing
  if (thread_.joinable()) {
    thread_.join();
  }
}

// Each rank of a host reads a part, so that their parts together are all files, read once. Ranks of
// other hosts have parts, too, that this host does without: then its readers find the rest by
// themselves, as they would without this.
void WarmUp::run(const OpenFiles::Known& known, const std::vector<WarmUpPiece>& pieces) noexcept {
  try {
    // One at a time: pieces of a file follow each other.
    OpenFiles files(known, {.most = 1});
    std::vector<PieceUnderWay> under_way;
    for (const WarmUpPiece& piece : pieces) {
      if (stop_.load(std::memory_order_relaxed)) {
        return;
      }
      // readahead() begins and returns; a read of the same bytes would copy them for nobody.
      const OpenFiles::Opened opened = files.open(piece.file);
      if (opened.error != 0 || readahead(opened.file->descriptor(),
                                         static_cast<off64_t>(piece.offset), piece.bytes) != 0) {
        return;
      }
      under_way.push_back({opened.file, piece.offset + piece.bytes - 1});
      if (under_way.size() == most_under_way) {
        settle(under_way.front());
        under_way.erase(under_way.begin());
      }
    }
  } catch (const std::exception&) {
    // The file has changed or is gone: whoever reads it says so.
  }
}

}  // namespace sprat::io
