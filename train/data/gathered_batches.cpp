// One gather for all micro-batches of a step: token ids are few beside activations, so what counts
// is how often ranks meet. All else that own samples take is what sequence parallelism does anyway:
// rows are dealt in equal parts, and equal parts of whole samples are samples.
#include "train/data/gathered_batches.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>

namespace sprat::train {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Inputs of a batch, or its targets, that one rank of the group has read.
std::size_t tokens_read(const Batch& batch, int parts, int part, int context) {
  const int samples = part_of_batch(batch.samples, parts, part).count;
  return static_cast<std::size_t>(samples) * static_cast<std::size_t>(context);
}

/// Of all batches, inputs and targets.
std::vector<std::size_t> counts_by_rank(const std::vector<Batch>& batches, int parts, int context) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(parts));
  for (int part = 0; part < parts; ++part) {
    for (const Batch& batch : batches) {
      counts[static_cast<std::size_t>(part)] += 2 * tokens_read(batch, parts, part, context);
    }
  }
  return counts;
}

}  // namespace

std::vector<Batch> gather_batches(tensor::Group& group, const BatchShare& share, int context,
                                  std::vector<Batch> own) {
  if (share.parts == 1) {
    return own;
  }
  // Each rank sends inputs, then targets, batch after batch.
  Tokens part;
  for (const Batch& batch : own) {
    part.insert(part.end(), batch.inputs.begin(), batch.inputs.end());
    part.insert(part.end(), batch.targets.begin(), batch.targets.end());
  }
  const std::vector<std::size_t> counts = counts_by_rank(own, share.parts, context);
  Tokens whole(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (!whole.empty()) {  // behind the end of a validation nobody has any
    group.gather(part, whole, counts).wait();
  }
  std::vector<Batch> batches;
  for (const Batch& batch : own) {
    batches.push_back({.inputs = {}, .targets = {}, .samples = batch.samples});
  }
  auto at = whole.begin();
  const auto take = [&](Tokens& to, std::size_t count) {
    const auto end = at + static_cast<std::ptrdiff_t>(count);
    to.insert(to.end(), at, end);
    at = end;
  };
  for (int rank = 0; rank < share.parts; ++rank) {
    for (Batch& batch : batches) {
      const std::size_t count = tokens_read(batch, share.parts, rank, context);
      take(batch.inputs, count);
      take(batch.targets, count);
    }
  }
  return batches;
}

}  // namespace sprat::train
