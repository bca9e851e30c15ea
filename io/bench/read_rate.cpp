// Reads are kept under way without a scheduler: nothing of ours but the reader is measured.
#include "io/bench/read_rate.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/base/check.hpp"
#include "io/readers/open_files.hpp"
#include "io/readers/read_memory.hpp"

namespace sprat::io {
namespace {

using BenchClock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// A part of the turn that does not count: queues fill, threads start.
constexpr double warm_up_share = 0.2;
/// A read that takes longer is taken for one that never ends.
constexpr auto longest_read = 60s;
/// Threads of readers that have some: as many as the loader's.
constexpr int bench_threads = 16;

double bench_seconds(BenchClock::time_point begin) {
  return std::chrono::duration<double>(BenchClock::now() - begin).count();
}

/// Bytes that came between two moments: the first that is behind the warm-up, and one at the end.
/// What is under way at both is the same, so it need not be counted.
class SteadyRate {
 public:
  explicit SteadyRate(double seconds) : seconds_(seconds) {}
  /// A machine that stalls makes the turn longer, and never the time that bytes are divided by
  /// shorter.
  bool over() const {
    return steady_from_ >= 0 &&
           bench_seconds(begin_) - steady_from_ >= (1 - warm_up_share) * seconds_;
  }
  /// What came together is added together.
  void add(std::uint64_t bytes) {
    if (steady_from_ >= 0) {
      bytes_ += bytes;
      return;
    }
    const double now = bench_seconds(begin_);
    steady_from_ = now >= warm_up_share * seconds_ ? now : -1;
  }
  /// Once it is over.
  double mbps() const {
    return static_cast<double>(bytes_) / (bench_seconds(begin_) - steady_from_) / 1e6;
  }

 private:
  const BenchClock::time_point begin_ = BenchClock::now();
  const double seconds_;
  double steady_from_ = -1;  // seconds from the begin; -1: still warming up
  std::uint64_t bytes_ = 0;
};

/// Extents cut into reads of a block at most.
class BenchReads {
 public:
  BenchReads(const FileTable& files, const BenchWay& way, const NextExtent& next)
      : next_(next),
        opened_([&files](std::uint32_t file) { return files.known(file); }, {.direct = way.direct}),
        files_(files) {}

  struct BenchPiece {
    Extent extent;
    std::shared_ptr<const OpenFile> file;
  };
  BenchPiece take() {
    if (left_.bytes == 0) {
      left_ = next_();
    }
    Extent extent = left_;
    extent.bytes = std::min(left_.bytes, bench_block_bytes);
    left_.offset += extent.bytes;
    left_.bytes -= extent.bytes;
    const OpenFiles::Opened opened = opened_.open(extent.file);
    need(opened.file != nullptr, "cannot open ", files_.path(extent.file), ": ",
         std::strerror(opened.error));
    return {.extent = extent, .file = opened.file};
  }
  /// Whether a part of the last extent is left.
  bool has_begun() const { return left_.bytes > 0; }
  void check(const BenchPiece& piece, std::size_t bytes, int error) const {
    need(error == 0 && (bytes > 0 || piece.extent.bytes == 0), "cannot read ", piece.extent.bytes,
         " bytes at ", piece.extent.offset, " of ", files_.path(piece.extent.file), ": ",
         error != 0 ? std::strerror(error) : "the file has ended");
  }

 private:
  const NextExtent& next_;
  OpenFiles opened_;
  const FileTable& files_;
  Extent left_;
};

double rate_of_reader(BenchReads& reads, const BenchWay& way, std::uint32_t alignment,
                      double seconds) {
  struct UnderWay {
    BenchReads::BenchPiece piece;
    std::span<std::byte> memory;
    std::uint64_t lead = 0;  // bytes before the extent that alignment adds
  };
  const std::uint64_t room = bench_block_bytes + 2 * std::uint64_t{alignment};
  const auto memory = plain_read_memory(static_cast<std::uint64_t>(way.depth) * (room + 4096));
  std::vector<UnderWay> under_way(static_cast<std::size_t>(way.depth));
  std::vector<std::uint64_t> idle;
  for (std::size_t i = 0; i < under_way.size(); ++i) {
    under_way[i].memory = memory->take(room);
    idle.push_back(i);
  }
  // Behind what it reads into, so that it is gone first: its end waits for reads under way.
  const auto reader =
      way.kind->open({.depth = way.depth, .threads = bench_threads, .direct = way.direct});
  SteadyRate rate(seconds);
  while (!rate.over()) {
    for (; !idle.empty(); idle.pop_back()) {
      UnderWay& one = under_way[idle.back()];
      one.piece = reads.take();
      const Extent& extent = one.piece.extent;
      one.lead = extent.offset % alignment;
      const std::uint64_t asked = (one.lead + extent.bytes + alignment - 1) / alignment * alignment;
      reader->submit({.descriptor = one.piece.file->descriptor(),
                      .offset = extent.offset - one.lead,
                      .into = one.memory.first(asked),
                      .tag = idle.back()});
    }
    const std::vector<ReadDone> ended = reader->reap(longest_read);
    need(!ended.empty(), "no read by ", way.kind->name, " has ended for ", longest_read.count(),
         " s: the file system hangs");
    std::uint64_t bytes = 0;
    for (const ReadDone& done : ended) {
      const UnderWay& one = under_way[done.tag];
      const std::uint64_t came = done.bytes - std::min<std::uint64_t>(done.bytes, one.lead);
      reads.check(one.piece, came, done.error);
      bytes += std::min(came, one.piece.extent.bytes);
      idle.push_back(done.tag);
    }
    rate.add(bytes);
  }
  return rate.mbps();
}

/// Bytes of the next piece, once they are in `memory`.
std::uint64_t pread_next(BenchReads& reads, std::span<std::byte> memory) {
  const BenchReads::BenchPiece piece = reads.take();
  const ssize_t got = ::pread(piece.file->descriptor(), memory.data(), piece.extent.bytes,
                              static_cast<off_t>(piece.extent.offset));
  reads.check(piece, static_cast<std::size_t>(std::max<ssize_t>(got, 0)), got < 0 ? errno : 0);
  return static_cast<std::uint64_t>(got);
}

double rate_of_preads(BenchReads& reads, double seconds) {
  std::vector<std::byte> memory(bench_block_bytes);
  SteadyRate rate(seconds);
  while (!rate.over()) {
    rate.add(pread_next(reads, memory));
  }
  return rate.mbps();
}

}  // namespace

double read_rate(const FileTable& files, const BenchWay& way, std::uint32_t alignment,
                 const NextExtent& next, double seconds) {
  BenchReads reads(files, way, next);
  return way.kind == nullptr
             ? rate_of_preads(reads, seconds)
             : rate_of_reader(reads, way, way.direct ? std::max(alignment, 1u) : 1, seconds);
}

std::size_t read_once(const FileTable& files, std::span<const Extent> extents, double seconds) {
  const auto begin = BenchClock::now();
  std::vector<std::byte> memory(bench_block_bytes);
  std::size_t taken = 0;
  const NextExtent next = [&] { return extents[taken++]; };
  BenchReads reads(files, {.access = BenchAccess::cached}, next);
  while (taken < extents.size() && (taken == 0 || bench_seconds(begin) < seconds)) {
    pread_next(reads, memory);
  }
  while (reads.has_begun()) {  // the last one whole: who comes after counts on it
    pread_next(reads, memory);
  }
  return taken;
}

ReleasedPages release_pages(const FileTable& files) {
  ReleasedPages released;
  // Not through OpenFiles: a file that has changed is for who reads it to complain of.
  for (std::uint32_t file = 0; file < files.files(); ++file) {
    const OpenFile opened(::open(files.path(file).c_str(), O_RDONLY | O_CLOEXEC), {});
    const bool asked = opened.descriptor() >= 0 &&
                       ::posix_fadvise(opened.descriptor(), 0, 0, POSIX_FADV_DONTNEED) == 0;
    ++(asked ? released.files : released.refused);
  }
  return released;
}

}  // namespace sprat::io
