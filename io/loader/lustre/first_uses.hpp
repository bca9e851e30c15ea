// In which order a run uses its files first, found a few samples at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/loader/file_table.hpp"
#include "io/order/global_batches.hpp"
#include "io/order/sample_stream.hpp"
#include "io/order/skip_list.hpp"

namespace sprat::io {

struct FirstUse {
  std::uint32_t file = 0;      ///< Of the table.
  std::uint64_t position = 0;  ///< Of the sample among those of all ranks, since the loader began.
};

struct FirstUsesOptions {
  std::shared_ptr<const FileTable> files;
  std::shared_ptr<const SampleStream> stream;
  GlobalBatches batches;
  std::uint64_t behind_last = 0;  ///< Batches are [0, behind_last).
};

struct FirstUsesLimits {
  std::uint64_t samples = 0;  ///< To look at.
  std::uint64_t until = 0;    ///< No sample from this position on.
  std::size_t files = 0;  ///< To find: none of a sample behind the one that has the last of them.
};

/// Of all ranks together, so that they find one order. A value; no I/O.
class FirstUses final {
 public:
  explicit FirstUses(FirstUsesOptions options);

  /// Files whose first use comes next, in their order. Goes on behind the last sample that it
  /// looked at. Cost: what the order of `limits.samples` samples costs.
  std::vector<FirstUse> next(const FirstUsesLimits& limits);
  /// Of the next sample to look at.
  std::uint64_t position() const noexcept { return position_; }
  /// No file is used that was not found: all are known, or two epochs were looked at, in which
  /// every sample of a source comes up.
  bool complete() const noexcept;

 private:
  FirstUsesOptions options_;
  SkipList skips_;  // a record that takes another's place is found when it is read
  std::uint64_t batch_samples_;
  std::vector<bool> found_;
  std::uint64_t left_ = 0;  // files that were not found
  std::uint64_t position_ = 0;
};

}  // namespace sprat::io
