// Which samples make which batch, and which of a batch a rank takes.
#pragma once

#include <cstdint>

#include "sprat/data.hpp"

namespace sprat::io {

/// A place in an endless stream of samples.
struct StreamPosition {
  std::uint64_t epoch = 0, index = 0;

  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};

struct BatchOptions {
  std::uint64_t epoch_samples = 0;
  std::uint64_t batch = 0;  ///< Samples of all ranks.
  Remainder remainder = Remainder::carry;
  StreamPosition start =
      {};  ///< Of batch 0: where a run goes on, with another batch size if it likes.
};

/// [begin, end) of a batch's samples; may be empty if there are more ranks than samples.
struct BatchSlots {
  std::uint64_t begin = 0, end = 0;
};

/// All ranks have the same batches, of one size, whatever their number. Pure.
class GlobalBatches {
 public:
  /// Throws Error{invalid_argument} if an epoch has no batch.
  explicit GlobalBatches(const BatchOptions& options);

  /// Where batch `batch` begins: what a run that ends before it saves.
  StreamPosition position(std::uint64_t batch) const;
  /// The sample at `slot` of it.
  StreamPosition sample(std::uint64_t batch, std::uint64_t slot) const;
  /// Of rank `rank` of `ranks`. Shares differ by one sample at most.
  BatchSlots share(std::uint64_t rank, std::uint64_t ranks) const;
  std::uint64_t epoch_samples() const { return options_.epoch_samples; }

 private:
  /// Batches of an epoch of which so many samples are left; not of Remainder::carry.
  std::uint64_t batches_of(std::uint64_t samples) const;

  BatchOptions options_;
};

}  // namespace sprat::io
