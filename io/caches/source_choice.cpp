// Rates are of all reads of a source together: what one read takes depends on how many share its
// way.
#include "io/caches/source_choice.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace sprat::io {
namespace {

/// What a read counts for after the next choice: a change of rates is noticed within some 30 reads.
constexpr double memory = 31.0 / 32.0;
constexpr std::uint64_t choices_per_trial = 64;

}  // namespace

BlockSource SourceChoice::choose(const BlockPlaces& places) noexcept {
  std::array<BlockSource, block_sources> having{};
  std::size_t count = 0;
  if (places.host_cache) {
    having[count++] = BlockSource::host_cache;
  }
  if (places.peer) {
    having[count++] = BlockSource::peer;
  }
  having[count++] = BlockSource::file_system;
  if (count == 1) {
    return BlockSource::file_system;
  }
  const auto sources = std::span(having).first(count);
  // Stable: of equal ones, and of those that were not measured, the nearer one comes first.
  std::ranges::stable_sort(sources, [this](BlockSource a, BlockSource b) {
    const auto first = rate(a), second = rate(b);
    if (!first || !second) {
      return !first && second.has_value();
    }
    return *first > *second;
  });
  const bool trial = ++choices_ % choices_per_trial == 0;
  return sources[trial ? 1 : 0];
}

void SourceChoice::add(BlockSource source, double bytes, double seconds) noexcept {
  Measure& measure = measures_[index(source)];
  // Of a source that is only tried now and then, what it once was is soon forgotten.
  const std::uint64_t choices = std::max<std::uint64_t>(1, choices_ - measure.choice);
  const double weight = std::pow(memory, static_cast<double>(choices));
  measure = {.bytes = measure.bytes * weight + bytes,
             .seconds = measure.seconds * weight + seconds,
             .choice = choices_};
}

void SourceChoice::measured(BlockSource source, std::uint64_t bytes, std::chrono::nanoseconds took,
                            std::size_t under_way) noexcept {
  // While k reads are under way each has about a k-th of the source for itself.
  const double seconds = std::chrono::duration<double>(took).count() /
                         static_cast<double>(std::max<std::size_t>(1, under_way));
  add(source, static_cast<double>(bytes), seconds);
}

void SourceChoice::failed(BlockSource source, std::chrono::nanoseconds took) noexcept {
  add(source, 0, std::chrono::duration<double>(took).count());
}

std::optional<double> SourceChoice::rate(BlockSource source) const noexcept {
  const Measure& measure = measures_[index(source)];
  if (measure.seconds <= 0) {
    return std::nullopt;
  }
  return measure.bytes / measure.seconds;
}

}  // namespace sprat::io
