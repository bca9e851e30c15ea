// One sweep over the wanted bytes of each file in ascending order: what is held already is left
// out, neighbours become one request, and requests end where targets change.
#include "io/reading/plan.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

constexpr std::uint64_t no_end = std::numeric_limits<std::uint64_t>::max();

std::uint64_t aligned_down(std::uint64_t offset, std::uint64_t alignment) {
  return offset & ~(alignment - 1);
}

std::uint64_t aligned_up(std::uint64_t offset, std::uint64_t alignment) {
  return aligned_down(offset + alignment - 1, alignment);
}

/// Of a striped range; it holds `offset`.
TargetRun striped_run(const StripedRange& range, std::uint64_t offset) {
  const std::uint64_t count = range.targets.size();
  const auto target_of = [&](std::uint64_t stripe) { return range.targets[stripe % count]; };
  std::uint64_t stripe = offset / range.stripe_bytes;
  const Target target = target_of(stripe);
  // Objects of one target that follow each other are one run, as where a file has more stripes
  // than there are targets.
  std::uint64_t end = 0;
  do {
    ++stripe;
    end = std::min(range.end,
                   stripe > no_end / range.stripe_bytes ? no_end : stripe * range.stripe_bytes);
  } while (end < range.end && end - offset < most_request_bytes && target_of(stripe) == target);
  return {.target = target, .end = end};
}

}  // namespace

TargetRun target_run(const PlannedFile& place, std::uint64_t offset) {
  if (place.layout == nullptr) {
    return {.target = place.target, .end = no_end};
  }
  const FileLayout& ranges = *place.layout;
  const auto behind = std::ranges::upper_bound(ranges, offset, {}, &StripedRange::begin);
  const std::uint64_t next = behind == ranges.end() ? no_end : behind->begin;
  if (behind == ranges.begin() || std::prev(behind)->end <= offset) {
    return {.target = place.target, .end = next};
  }
  const StripedRange& range = *std::prev(behind);
  if (range.targets.empty()) {
    return {.target = place.target, .end = range.end};
  }
  if (range.stripe_bytes == 0 || range.targets.size() == 1) {
    return {.target = range.targets.front(), .end = range.end};
  }
  return striped_run(range, offset);
}

/// Makes the requests of one file from its wanted ranges, which come in ascending order.
class ReadPlanner::Sweep {
 public:
  Sweep(const ReadPlanLimits& limits, const PlannedFile& place, std::uint32_t file,
        std::span<const Held> held, std::vector<Held>& requests)
      : limits_(limits), place_(place), file_(file), held_(held), requests_(requests) {}

  void want(std::uint64_t begin, std::uint64_t end) {
    // Whole blocks are read, and a block that an earlier range has taken is not taken twice.
    begin = std::max(aligned_down(begin, place_.alignment), covered_);
    end = aligned_up(end, place_.alignment);
    while (begin < end) {
      while (next_held_ < held_.size() && held_[next_held_].end <= begin) {
        ++next_held_;
      }
      if (next_held_ < held_.size() && held_[next_held_].begin <= begin) {
        begin = held_[next_held_].end;
        continue;
      }
      const std::uint64_t free_until =
          next_held_ < held_.size() ? std::min(end, held_[next_held_].begin) : end;
      take(begin, free_until);
      begin = free_until;
    }
    covered_ = std::max(covered_, end);
  }

 private:
  /// A range that nobody has, cut where the target changes.
  void take(std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const TargetRun run = target_run(place_, begin);
      // A block that two targets share belongs to the one where it begins; stripes of Lustre are
      // multiples of 64 KiB, so there is none.
      const std::uint64_t run_end =
          run.end == no_end
              ? no_end
              : std::max(aligned_down(run.end, place_.alignment), begin + place_.alignment);
      const std::uint64_t until = std::min(end, run_end);
      if (!join(begin, until, run.target)) {
        add(begin, until, run);
        run_end_ = run_end;
      }
      begin = until;
    }
  }

  /// Whether the last request of this file now has the range, too.
  bool join(std::uint64_t begin, std::uint64_t end, Target target) {
    if (!joinable_) {
      return false;
    }
    Held& last = requests_.back();
    // A hole may lie on another target, unless one run is known to hold both of its ends.
    const bool one_target = last.target == target && (begin < run_end_ || begin == last.end);
    const bool near = begin - last.end <= limits_.hole_bytes;
    const bool hole_is_held = next_held_ > 0 && held_[next_held_ - 1].begin >= last.end;
    if (!one_target || !near || hole_is_held || end - last.begin > limits_.request_bytes) {
      return false;
    }
    last.end = end;
    run_end_ = std::max(run_end_, end);
    return true;
  }

  /// As one request, or, where it is too long, as several that end at multiples of a request's
  /// length, so that whoever reads on in the file finds whole ones.
  void add(std::uint64_t begin, std::uint64_t end, const TargetRun& run) {
    while (begin < end) {
      const std::uint64_t until =
          end - begin <= limits_.request_bytes
              ? end
              : aligned_down(begin, limits_.request_bytes) + limits_.request_bytes;
      requests_.push_back({.file = file_,
                           .begin = begin,
                           .end = until,
                           .due = no_end,
                           .target = run.target,
                           .file_bytes = place_.bytes,
                           .alignment = place_.alignment});
      begin = until;
    }
    joinable_ = true;
  }

  const ReadPlanLimits& limits_;
  const PlannedFile& place_;
  const std::uint32_t file_;
  const std::span<const Held> held_;  // of this file
  std::vector<Held>& requests_;       // of all files; those of this one are last
  std::size_t next_held_ = 0;         // the first that ends behind what was swept
  std::uint64_t covered_ = 0;         // all wanted bytes before are held or requested
  std::uint64_t run_end_ = 0;         // of the last request's target
  bool joinable_ = false;
};

ReadPlanner::ReadPlanner(const ReadPlanLimits& limits) : limits_(limits) {
  require(std::has_single_bit(limits.request_bytes) && limits.request_bytes <= most_request_bytes,
          "requests of ", limits.request_bytes,
          " bytes are not planned; name a power of two up to ", most_request_bytes);
}

ReadPlan ReadPlanner::plan(std::span<const WantedSample> samples, const PlaceOf& place_of) {
  purge();
  const std::vector<Wanted> wanted = collect(samples);
  std::vector<Held> requests;
  for (auto first = wanted.begin(); first != wanted.end();) {
    const std::uint32_t file = first->file;
    const auto behind =
        std::find_if(first, wanted.end(), [&](const Wanted& one) { return one.file != file; });
    const PlannedFile place = place_of(file);
    require(std::has_single_bit(place.alignment) && place.alignment <= limits_.request_bytes,
            "file ", file, " cannot be read in blocks of ", place.alignment,
            " bytes by requests of ", limits_.request_bytes);
    const auto first_held = std::ranges::lower_bound(held_, file, {}, &Held::file);
    const auto last_held = std::ranges::upper_bound(first_held, held_.end(), file, {}, &Held::file);
    Sweep sweep(limits_, place, file, {first_held, last_held}, requests);
    for (; first != behind; ++first) {
      require(first->end <= place.bytes, "a sample wants the bytes from ", first->begin, " to ",
              first->end, " of file ", file, ", which has ", place.bytes,
              "; index the dataset anew");
      sweep.want(first->begin, first->end);
    }
  }
  for (Held& one : requests) {
    one.id = next_id_++;
    held_bytes_ += one.end - one.begin;
  }
  const std::uint64_t first_id = next_id_ - requests.size();
  const auto middle = static_cast<std::ptrdiff_t>(held_.size());
  held_.insert(held_.end(), requests.begin(), requests.end());
  const auto before = [](const Held& one, const Held& other) {
    return std::tie(one.file, one.begin) < std::tie(other.file, other.begin);
  };
  std::inplace_merge(held_.begin(), held_.begin() + middle, held_.end(), before);

  ReadPlan plan;
  for (const WantedSample& sample : samples) {
    map_back(sample, plan);
  }
  for (const Held& one : held_) {
    if (one.id >= first_id) {
      plan.requests.push_back(
          {.id = one.id,
           .extent = {.file = one.file, .offset = one.begin, .bytes = one.end - one.begin},
           .in_file_bytes = std::min(one.end, one.file_bytes) - one.begin,
           .target = one.target,
           .due = one.due,
           .alignment = one.alignment});
    }
  }
  std::ranges::stable_sort(plan.requests, {}, &Request::due);
  return plan;
}

std::vector<ReadPlanner::Wanted> ReadPlanner::collect(std::span<const WantedSample> samples) {
  std::vector<Wanted> wanted;
  for (const WantedSample& sample : samples) {
    for (const Extent& extent : sample.extents) {
      require(extent.bytes <= no_end / 2 && extent.offset <= no_end / 2, "sample ", sample.position,
              " wants ", extent.bytes, " bytes at ", extent.offset, " of file ", extent.file,
              ", which no file has; index the dataset anew");
      if (extent.bytes > 0) {
        wanted.push_back(
            {.file = extent.file, .begin = extent.offset, .end = extent.offset + extent.bytes});
      }
    }
  }
  std::ranges::sort(wanted, {},
                    [](const Wanted& one) { return std::tuple(one.file, one.begin, one.end); });
  return wanted;
}

ReadPlanner::Held& ReadPlanner::holder_of(std::uint32_t file, std::uint64_t offset) {
  const auto behind =
      std::ranges::upper_bound(held_, std::tuple(file, offset), {},
                               [](const Held& one) { return std::tuple(one.file, one.begin); });
  return *std::prev(behind);
}

/// Every byte is held by now, so each offset has a holder.
void ReadPlanner::map_back(const WantedSample& sample, ReadPlan& plan) {
  std::uint64_t at = 0;
  for (const Extent& extent : sample.extents) {
    std::uint64_t offset = extent.offset;
    const std::uint64_t end = extent.offset + extent.bytes;
    while (offset < end) {
      Held& holder = holder_of(extent.file, offset);
      if (holder.due != no_end && sample.position < holder.due) {  // not a request of this plan
        plan.earlier.push_back({.request = holder.id, .due = sample.position});
      }
      holder.due = std::min(holder.due, sample.position);
      holder.last = std::max(holder.last, sample.position);
      const std::uint64_t bytes = std::min(end, holder.end) - offset;
      plan.pieces.push_back({.position = sample.position,
                             .at = at,
                             .request = holder.id,
                             .from = offset - holder.begin,
                             .bytes = bytes});
      at += bytes;
      offset += bytes;
    }
  }
}

void ReadPlanner::forget(std::span<const std::uint64_t> requests) {
  forgotten_.insert(forgotten_.end(), requests.begin(), requests.end());
}

/// All at once before held_ is looked at, since taking one from the middle of a vector moves the
/// rest.
void ReadPlanner::purge() {
  if (forgotten_.empty()) {
    return;
  }
  std::ranges::sort(forgotten_);
  std::erase_if(held_, [&](const Held& one) {
    const bool gone = std::ranges::binary_search(forgotten_, one.id);
    held_bytes_ -= gone ? one.end - one.begin : 0;
    return gone;
  });
  forgotten_.clear();
}

std::uint64_t ReadPlanner::held_bytes() {
  purge();
  return held_bytes_;
}

std::uint64_t ReadPlanner::most_needed_bytes() {
  purge();
  // What is taken at a position counts before what was let go of behind it.
  struct Change {
    std::uint64_t position = 0;
    bool ends = false;
    std::uint64_t bytes = 0;
  };
  std::vector<Change> changes;
  for (const Held& one : held_) {
    changes.push_back({.position = one.due, .ends = false, .bytes = one.end - one.begin});
    changes.push_back({.position = one.last, .ends = true, .bytes = one.end - one.begin});
  }
  std::ranges::sort(changes, {},
                    [](const Change& one) { return std::tuple(one.position, one.ends); });
  std::uint64_t now = 0, most = 0;
  for (const Change& change : changes) {
    now = change.ends ? now - change.bytes : now + change.bytes;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace sprat::io
