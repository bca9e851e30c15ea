// The samples of a run: an endless stream of one source's, or of a mixture's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/order/global_batches.hpp"
#include "io/order/mixture.hpp"
#include "io/order/sampling.hpp"
#include "io/order/skip_list.hpp"

namespace sprat::io {

struct StreamSource {
  std::shared_ptr<const RecordTable> table;  ///< Shared with whoever reads its files.
  SamplingOptions sampling = {};
  double weight = 1;  ///< Among the sources'.
};

struct StreamOptions {
  std::vector<StreamSource> sources = {};  ///< At most 64.
  std::uint64_t seed = 0;
  RunTasks run = run_in_turn;
};

/// Immutable; any thread may ask, several at once. Each source runs through its own epochs. The
/// first source's sampling has the stream's seed, the others have seeds of their own.
class SampleStream {
 public:
  /// Throws Error{invalid_argument} naming the source that is not as its sampling needs it.
  explicit SampleStream(StreamOptions options);

  /// In an epoch of the stream: as many as all sources have together.
  std::uint64_t samples() const noexcept { return samples_; }
  /// position.index < samples(). `skips` has as many sources as the stream.
  Sample sample(StreamPosition position, const SkipList& skips) const;

  std::uint64_t seed() const noexcept { return seed_; }
  std::size_t sources() const noexcept { return sources_.size(); }
  std::uint64_t records(std::size_t source) const { return sources_[source].table->records(); }
  /// All that decides on a source's samples but the seed, as NAME=VALUE with spaces between:
  /// sampling, options that are not as by default, weight, dataset, and its records.
  std::string source_text(std::size_t source) const;

 private:
  std::vector<StreamSource> sources_;
  std::vector<std::unique_ptr<const Sampling>> samplings_;
  std::uint64_t seed_, samples_ = 0;
  Mixture mixture_;
};

}  // namespace sprat::io
