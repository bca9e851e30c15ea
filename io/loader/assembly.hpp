// Requests become samples, samples become batches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/loader/batch.hpp"
#include "io/loader/memory_pool.hpp"
#include "io/reading/plan.hpp"

namespace sprat::io {

/// What of a sample is there.
struct SampleProgress {
  std::vector<std::span<const std::byte>> pieces;
  std::vector<std::uint64_t> requests;  ///< That it looks at.
  std::size_t missing = 0;
};

class RowCopies;

/// A batch whose samples are not all there.
struct BatchBuild {
  std::shared_ptr<DataBatch::Impl> batch = std::make_shared<DataBatch::Impl>();
  std::uint64_t begin = 0;  ///< The position of its first sample among all that this rank is given.
  std::uint64_t bytes = 0;  ///< That it takes of the window of reading ahead.
  bool copies = false;      ///< Its batch has rows.
  /// Rows that are tried in the page cache first. Shared, since its type is known to few.
  std::shared_ptr<RowCopies> cached;
  std::vector<SampleProgress> progress;  ///< Empty until a sample is planned.
  /// Samples that are not whole and decoded. Whoever brings it to 0 gives the batch out.
  std::atomic<std::size_t> left = 0;
  std::exception_ptr error;  ///< The first one.
};

struct SampleRef {
  std::shared_ptr<BatchBuild> build;
  std::size_t sample = 0;  ///< In the batch.
};

/// Owns the memory of requests for as long as a sample wants them. One thread at a time.
///
/// Samples of tokens are copied into rows of the batch, since they are to lie side by side. All
/// others stay where they were read: neighbours in a file are neighbours in memory, also where they
/// were read by several requests. A block that a large sample shares with one that was planned
/// before is copied to the margin of its memory.
class Assembly final {
 public:
  explicit Assembly(std::shared_ptr<MemoryPool> pool) : pool_(std::move(pool)) {}

  /// What the plan says of some of the build's samples. Returns those that are complete already.
  std::vector<SampleRef> expect(const std::shared_ptr<BatchBuild>& build, const ReadPlan& plan,
                                std::span<const std::size_t> samples);
  /// Where a request's bytes go.
  std::span<std::byte> memory(std::uint64_t request) const { return held_.at(request).bytes; }
  /// Who keeps that memory.
  std::shared_ptr<const void> owner(std::uint64_t request) const {
    return held_.at(request).memory;
  }
  /// All bytes of it are there. Returns the samples that are complete by it.
  std::vector<SampleRef> arrived(std::uint64_t request);
  /// A complete sample is not made of these bytes after all: it is to be expected anew.
  void drop(const SampleRef& sample);

  /// The build's bytes are not looked at any more.
  void let_go(const BatchBuild& build);
  /// That wait for something of a request that has not arrived.
  std::vector<std::shared_ptr<BatchBuild>> builds_of(std::uint64_t request) const;
  /// Requests that nobody wants any more, since the last call. Their memory is gone.
  std::vector<std::uint64_t> take_unwanted() { return std::exchange(unwanted_, {}); }

 private:
  /// Where a piece belongs that lies in a request of another run; null: it stays, or has a row.
  struct Margin {
    std::byte* at = nullptr;
    PooledMemory memory = nullptr;
  };
  struct Piece {
    std::shared_ptr<BatchBuild> build;
    std::size_t sample = 0, number = 0;
    std::uint64_t at = 0, from = 0, bytes = 0;
    Margin margin;
  };
  struct HeldRequest {
    PooledMemory memory;
    std::span<std::byte> bytes;
    Extent extent;
    bool whole = false;
    std::vector<Piece> waiting;  // until it is whole
    std::uint64_t wanted = 0;    // pieces of samples that look at it, or will
  };

  void take_memory(const ReadPlan& plan);
  std::vector<SampleRef> deliver(std::uint64_t request, const std::vector<Piece>& pieces);
  void complete(BatchBuild& build, std::size_t sample);
  bool follow_in_file(const SamplePiece& one, const SamplePiece& next) const;
  Margin margin_of(const SamplePiece& piece, std::span<const SamplePiece> sample) const;
  void unwant(std::uint64_t request, std::uint64_t pieces);

  std::shared_ptr<MemoryPool> pool_;
  std::unordered_map<std::uint64_t, HeldRequest> held_;  // by request
  std::vector<std::uint64_t> unwanted_;
};

}  // namespace sprat::io
