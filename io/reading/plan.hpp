// From the samples that come next to reads: which requests, and where in them each sample lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "io/dataset/extent.hpp"
#include "io/reading/request.hpp"

namespace sprat::io {

/// No request is larger.
inline constexpr std::uint64_t most_request_bytes = std::uint64_t{16} << 20;

struct ReadPlanLimits {
  /// Of a request. A power of two, at most most_request_bytes.
  std::uint64_t request_bytes = std::uint64_t{4} << 20;
  /// So many bytes that nobody wants are read along where that joins two requests.
  std::uint64_t hole_bytes = std::uint64_t{64} << 10;
};

/// How a file lies on storage, and how it is read.
struct PlannedFile {
  std::uint64_t bytes = 0;
  const FileLayout* layout = nullptr;  ///< Null: all of it on `target`. See PlaceOf.
  Target target = 0;                   ///< Also of what no range of the layout has.
  /// Of direct reads: a power of two, at most request_bytes. Never grows from plan to plan.
  std::uint32_t alignment = 1;
};

/// Bytes of a file from some offset to `end` that lie on one target.
struct TargetRun {
  Target target = 0;
  std::uint64_t end = 0;
};
/// Pure. `end` may be nearer than the run's, but for the end of a stripe: no run is told further
/// than most_request_bytes unless it costs nothing.
TargetRun target_run(const PlannedFile& place, std::uint64_t offset);

struct WantedSample {
  std::uint64_t position = 0;  ///< In the order of delivery; ascending from plan to plan.
  std::span<const Extent> extents;
};

/// Bytes of a sample that lie in one request.
struct SamplePiece {
  std::uint64_t position = 0;  ///< The sample's.
  std::uint64_t at = 0;        ///< In the sample's bytes.
  std::uint64_t request = 0;   ///< An id; of this plan, or of an earlier one that is not forgotten.
  std::uint64_t from = 0;      ///< In the request's extent.
  std::uint64_t bytes = 0;
};

/// Of an earlier plan's request.
struct EarlierDue {
  std::uint64_t request = 0, due = 0;
};

struct ReadPlan {
  std::vector<Request> requests;    ///< In the order of their dues.
  std::vector<EarlierDue> earlier;  ///< Such that are due earlier by this plan.
  std::vector<SamplePiece> pieces;  ///< Of each sample in turn, ascending and without a hole.
};

/// A state machine without I/O: it remembers which bytes are on their way or in memory, so that
/// what a sample wants of them is not asked for again. One thread at a time.
///
/// Each request lies on one target. With stripes of 1 MiB requests are of 1 MiB: storage splits
/// larger ones at stripes anyway, older clients of Lustre then wait for one part after the other,
/// and a request that spans targets would wait for the slowest of them and hide which it was.
class ReadPlanner final {
 public:
  /// Throws Error{invalid_argument}.
  explicit ReadPlanner(const ReadPlanLimits& limits);

  /// A layout that it names is there until it is asked for another file.
  using PlaceOf = std::function<PlannedFile(std::uint32_t file)>;
  /// Throws Error{invalid_argument} naming sample, file and bytes if an extent lies beyond its
  /// file. `place_of` is asked once for each file of the samples.
  ReadPlan plan(std::span<const WantedSample> samples, const PlaceOf& place_of);
  /// The bytes of these requests are no longer in memory: whoever wants them asks anew.
  void forget(std::span<const std::uint64_t> requests);

  /// Of all requests that are not forgotten.
  std::uint64_t held_bytes();
  /// The most that have to be held at once if samples are delivered in order and each request is
  /// let go of behind the last sample that wants it. A budget of so many bytes never blocks.
  /// Cost: O(n log n) for n requests that are not forgotten.
  std::uint64_t most_needed_bytes();

 private:
  struct Held {
    std::uint32_t file = 0;
    std::uint64_t begin = 0, end = 0, id = 0;
    std::uint64_t due = 0, last = 0;  // positions of the first and last sample that want it
    Target target = 0;
    std::uint64_t file_bytes = 0;
    std::uint32_t alignment = 1;
  };
  struct Wanted {
    std::uint32_t file = 0;
    std::uint64_t begin = 0, end = 0;
  };
  class Sweep;

  static std::vector<Wanted> collect(std::span<const WantedSample> samples);
  void purge();
  Held& holder_of(std::uint32_t file, std::uint64_t offset);
  void map_back(const WantedSample& sample, ReadPlan& plan);

  ReadPlanLimits limits_;
  std::vector<Held> held_;                // by file and begin; none overlaps another
  std::vector<std::uint64_t> forgotten_;  // still among held_
  std::uint64_t held_bytes_ = 0;
  std::uint64_t next_id_ = 0;
};

}  // namespace sprat::io
