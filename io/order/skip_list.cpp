#include "io/order/skip_list.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::io {

const RecordRange* range_from(SkippedRecords skipped, std::uint64_t record) {
  const auto found = std::ranges::upper_bound(skipped, record, {}, &RecordRange::end);
  return found == skipped.end() ? nullptr : &*found;
}

std::uint64_t usable_record(std::uint64_t record, std::uint64_t records, SkippedRecords skipped) {
  // Ranges do not touch, so what follows one is usable, unless that is the end; and what follows a
  // range at the beginning is usable, unless that range reaches the end, too.
  for (int round = 0; round < 3; ++round) {
    const RecordRange* range = range_from(skipped, record);
    if (range == nullptr || record < range->begin) {
      return record;
    }
    record = range->end < records ? range->end : 0;
  }
  throw Error(
      ErrorCode::unavailable,
      text("all ", records, " records of a source are damaged: repair or replace its files"));
}

void SkipList::add(std::size_t source, RecordRange range) {
  require(source < ranges_.size() && range.begin < range.end, "records ", range.begin, " to ",
          range.end, " of source ", source, " are no range of one of ", ranges_.size(), " sources");
  std::vector<RecordRange>& ranges = ranges_[source];
  // All that overlaps the new range or touches it becomes one with it.
  const auto first = std::ranges::lower_bound(ranges, range.begin, {}, &RecordRange::end);
  auto last = first;
  for (; last != ranges.end() && last->begin <= range.end; ++last) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
  }
  ranges.insert(ranges.erase(first, last), range);
}

void SkipList::merge(const SkipList& other) {
  require(other.sources() == sources(), "a skip list of ", other.sources(),
          " sources cannot be added to one of ", sources());
  for (std::size_t source = 0; source < other.sources(); ++source) {
    for (const RecordRange& range : other.of(source)) {
      add(source, range);
    }
  }
}

std::size_t SkipList::ranges() const noexcept {
  std::size_t count = 0;
  for (const auto& ranges : ranges_) {
    count += ranges.size();
  }
  return count;
}

std::uint64_t SkipList::records() const noexcept {
  std::uint64_t count = 0;
  for (const auto& ranges : ranges_) {
    for (const RecordRange& range : ranges) {
      count += range.size();
    }
  }
  return count;
}

SkipList SkipList::longest(std::size_t most) const {
  struct Located {
    std::size_t source;
    RecordRange range;
  };
  std::vector<Located> all;
  for (std::size_t source = 0; source < sources(); ++source) {
    for (const RecordRange& range : of(source)) {
      all.push_back({source, range});
    }
  }
  // Stable, so that ranks which have the same list keep the same of it.
  std::ranges::stable_sort(all, std::greater<>(), [](const Located& l) { return l.range.size(); });
  all.resize(std::min(most, all.size()));
  SkipList kept(sources());
  for (const Located& located : all) {
    kept.add(located.source, located.range);
  }
  return kept;
}

}  // namespace sprat::io
