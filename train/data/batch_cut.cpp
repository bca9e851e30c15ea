#include "train/data/batch_cut.hpp"

#include <algorithm>

namespace sprat::train {

SampleRange part_of_batch(int batch, int parts, int index) {
  const int size = batch / parts, longer = batch % parts;
  return {.first = index * size + std::min(index, longer),
          .count = size + (index < longer ? 1 : 0)};
}

int global_microbatch(GradientOrder order, const MicrobatchPlace& place) {
  const auto& [share, microbatches, microbatch] = place;
  return order == GradientOrder::tree ? share.rank * microbatches + microbatch
                                      : microbatch * share.ranks + share.rank;
}

std::vector<ContextPiece> own_positions(int context, BatchShare share) {
  if (share.context_ranks == 1) {
    return {{.first = 0, .count = context}};
  }
  const auto pieces = context_pieces(context, share.context_ranks, share.context_rank);
  return {pieces.begin(), pieces.end()};
}

BatchCut::BatchCut(const TrainConfig& config)
    : gradient_order_(config.sharding.gradient_order),
      micro_steps_(config.sharding.micro_steps),
      batch_(config.train.batch) {}

SampleRange BatchCut::micro_batch(int micro_step, BatchShare share) const {
  const int number = global_microbatch(
      gradient_order_, {.share = share, .microbatches = micro_steps_, .microbatch = micro_step});
  return part_of_batch(batch_, micro_steps_ * share.ranks, number);
}

SampleRange BatchCut::own_part(int micro_step, BatchShare share) const {
  const SampleRange all = micro_batch(micro_step, share);
  const SampleRange own = part_of_batch(all.count, share.parts, share.part);
  return {.first = all.first + own.first, .count = own.count};
}

int BatchCut::largest_share(int ranks) const {
  return part_of_batch(batch_, micro_steps_ * ranks, 0).count;
}

int BatchCut::validation_batches(int samples, int ranks) const {
  const int together = largest_share(ranks) * ranks;
  return (samples + together - 1) / together;
}

// Ranks take whole shares in turn, so the last ranks of the last batch may have none.
SampleRange BatchCut::validation_range(int index, int samples, BatchShare share) const {
  const int mine = largest_share(share.ranks);
  const int first = std::min((index * share.ranks + share.rank) * mine, samples);
  return {.first = first, .count = std::min(mine, samples - first)};
}

}  // namespace sprat::train
