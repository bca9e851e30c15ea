// Records that cannot be used, by source, and what takes their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sprat::io {

/// [begin, end) of a source's records.
struct RecordRange {
  std::uint64_t begin = 0, end = 0;

  std::uint64_t size() const noexcept { return end - begin; }
  friend bool operator==(const RecordRange&, const RecordRange&) = default;
};

/// Of one source: ascending, neither empty nor touching.
using SkippedRecords = std::span<const RecordRange>;

/// The first range that ends behind `record`, or null: it holds `record`, or is what comes next.
const RecordRange* range_from(SkippedRecords skipped, std::uint64_t record);

/// `record`, or the record that takes its place: the next one that is not skipped, behind the last
/// of `records` the first. Throws Error{unavailable} if all are skipped.
std::uint64_t usable_record(std::uint64_t record, std::uint64_t records, SkippedRecords skipped);

/// What a run has found damaged. A record's replacement is the next sound one, so ranks may learn
/// of a record at different times, and a list may forget: who meets the record reads it once more,
/// finds it damaged again, and comes to the same replacement.
class SkipList {
 public:
  /// How many sources there are.
  explicit SkipList(std::size_t sources = 1) : ranges_(sources) {}

  /// `source` is one of them, the range not empty.
  void add(std::size_t source, RecordRange range);
  /// Adds all that another list of as many sources has.
  void merge(const SkipList& other);

  std::size_t sources() const noexcept { return ranges_.size(); }
  SkippedRecords of(std::size_t source) const { return ranges_[source]; }
  std::size_t ranges() const noexcept;
  std::uint64_t records() const noexcept;
  /// With at most so many ranges, the longest: those that save most reads. Of equal ones the first.
  SkipList longest(std::size_t most) const;

  friend bool operator==(const SkipList&, const SkipList&) = default;

 private:
  std::vector<std::vector<RecordRange>> ranges_;  // by source
};

}  // namespace sprat::io
