// Orders are closed forms, so a sample is looked at without its predecessors; first uses are not,
// so every sample is looked at once.
#include "io/loader/lustre/first_uses.hpp"

#include <utility>

namespace sprat::io {

FirstUses::FirstUses(FirstUsesOptions options)
    : options_(std::move(options)),
      skips_(options_.stream->sources()),
      batch_samples_(options_.batches.share(0, 1).end),
      found_(options_.files->files()),
      left_(options_.files->files()) {}

bool FirstUses::complete() const noexcept {
  return left_ == 0 || position_ / batch_samples_ >= options_.behind_last ||
         position_ / 2 >= options_.stream->samples() + batch_samples_;
}

std::vector<FirstUse> FirstUses::next(const FirstUsesLimits& limits) {
  std::vector<FirstUse> uses;
  for (const std::uint64_t begin = position_;
       position_ - begin < limits.samples && position_ < limits.until &&
       uses.size() < limits.files && !complete();
       ++position_) {
    const Sample sample = options_.stream->sample(
        options_.batches.sample(position_ / batch_samples_, position_ % batch_samples_), skips_);
    for (const Extent& extent : sample.extents) {
      const std::uint32_t file = options_.files->number(sample.source, extent.file);
      if (!found_[file]) {
        found_[file] = true;
        --left_;
        uses.push_back({.file = file, .position = position_});
      }
    }
  }
  return uses;
}

}  // namespace sprat::io
