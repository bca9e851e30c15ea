#include "io/order/global_batches.hpp"

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

// Products of a rank and a batch's samples, and of epochs and theirs, then have 64 bits.
constexpr std::uint64_t largest_batch = std::uint64_t{1} << 32;

}  // namespace

GlobalBatches::GlobalBatches(const BatchOptions& options) : options_(options) {
  require(options.batch > 0 && options.batch < largest_batch, "a batch of ", options.batch,
          " samples: give from 1 to ", largest_batch - 1);
  require(options.epoch_samples > 0, "an epoch has no samples");
  require(options.start.index < options.epoch_samples, "sample ", options.start.index,
          " is outside an epoch of ", options.epoch_samples);
  require(options.remainder != Remainder::drop || options.epoch_samples >= options.batch,
          "an epoch of ", options.epoch_samples, " samples has no batch of ", options.batch,
          ", and what fills none is dropped: give a smaller batch, or carry the remainder over");
}

std::uint64_t GlobalBatches::batches_of(std::uint64_t samples) const {
  const std::uint64_t whole = samples / options_.batch;
  return whole + (options_.remainder == Remainder::pad && samples % options_.batch > 0 ? 1 : 0);
}

StreamPosition GlobalBatches::position(std::uint64_t batch) const {
  const std::uint64_t samples = options_.epoch_samples;
  const StreamPosition start = options_.start;
  if (options_.remainder == Remainder::carry) {
    const std::uint64_t index = start.index + batch * options_.batch;
    return {.epoch = start.epoch + index / samples, .index = index % samples};
  }
  // The first epoch may have been begun with other batches, so it has its own number of them.
  const std::uint64_t first = batches_of(samples - start.index);
  if (batch < first) {
    return {.epoch = start.epoch, .index = start.index + batch * options_.batch};
  }
  const std::uint64_t behind = batch - first, each = batches_of(samples);
  return {.epoch = start.epoch + 1 + behind / each, .index = behind % each * options_.batch};
}

StreamPosition GlobalBatches::sample(std::uint64_t batch, std::uint64_t slot) const {
  require(slot < options_.batch, "slot ", slot, " is outside a batch of ", options_.batch);
  const StreamPosition first = position(batch);
  const std::uint64_t index = first.index + slot, samples = options_.epoch_samples;
  if (options_.remainder == Remainder::pad) {
    return {.epoch = first.epoch, .index = index % samples};
  }
  return {.epoch = first.epoch + index / samples, .index = index % samples};
}

BatchSlots GlobalBatches::share(std::uint64_t rank, std::uint64_t ranks) const {
  require(rank < ranks && ranks < largest_batch, "rank ", rank, " is outside of ", ranks);
  return {.begin = rank * options_.batch / ranks, .end = (rank + 1) * options_.batch / ranks};
}

}  // namespace sprat::io
