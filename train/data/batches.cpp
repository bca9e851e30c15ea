// Cutting samples out of the text.
#include "train/data/batches.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "sprat/context.hpp"
#include "sprat/error.hpp"

namespace sprat::train {
namespace {

/// Tokens of the training part. A sample needs one token more than its context, for the last
/// target, and the training part needs two samples for the order to have something to choose from.
std::size_t split(const TokenizedText& text, const TrainConfig& config) {
  const std::size_t tokens = text.size();
  const double held_out = static_cast<double>(tokens) * config.data.validation_share;
  const auto validation = static_cast<std::size_t>(held_out);
  const auto context = static_cast<std::size_t>(config.model.context);
  if (validation < context + 1 || tokens - validation < 2 * context + 1) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("data.files hold {} {}: {} to learn and {} held out by "
                    "data.validation_share {}; model.context {} needs {} and {}: give more text",
                    tokens, text.is_bytes() ? "bytes" : "tokens", tokens - validation, validation,
                    config.data.validation_share, context, 2 * context + 1, context + 1));
  }
  return tokens - validation;
}

}  // namespace

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

Batches::Batches(TokenizedText text, const TrainConfig& config)
    : text_(std::move(text)),
      training_tokens_(split(text_, config)),
      gradient_order_(config.sharding.gradient_order),
      micro_steps_(config.sharding.micro_steps),
      context_(config.model.context),
      batch_(config.train.batch),
      order_(config.sharding.seed, training_tokens_ - 1, static_cast<std::uint64_t>(context_)) {}

void Batches::append(std::uint64_t begin, BatchShare share, Batch& batch) const {
  const auto copy = [&](const ContextPiece& piece) {
    const auto first = begin + static_cast<std::uint64_t>(piece.first);
    const auto count = static_cast<std::size_t>(piece.count);
    text_.copy(first, count, batch.inputs);
    text_.copy(first + 1, count, batch.targets);
  };
  if (share.context_ranks == 1) {
    copy({.first = 0, .count = context_});
    return;
  }
  std::ranges::for_each(context_pieces(context_, share.context_ranks, share.context_rank), copy);
}

Batch Batches::training(std::int64_t first_sample, int micro_step, BatchShare share) const {
  const int number = global_microbatch(
      gradient_order_, {.share = share, .microbatches = micro_steps_, .microbatch = micro_step});
  const SampleRange all = part_of_batch(batch_, micro_steps_ * share.ranks, number);
  const SampleRange own = part_of_batch(all.count, share.parts, share.part);
  Batch batch{.inputs = {}, .targets = {}, .samples = all.count};
  for (int i = 0; i < own.count; ++i) {
    const std::int64_t sample = first_sample + all.first + own.first + i;
    append(order_.begin(static_cast<std::uint64_t>(sample)), share, batch);
  }
  return batch;
}

int Batches::largest_share(int ranks) const {
  return part_of_batch(batch_, micro_steps_ * ranks, 0).count;
}

int Batches::validation_samples(int wanted) const {
  const std::size_t all = (validation_tokens() - 1) / static_cast<std::size_t>(context_);
  return static_cast<int>(std::min(all, static_cast<std::size_t>(wanted)));
}

int Batches::validation_batches(int samples, int ranks) const {
  const int together = largest_share(ranks) * ranks;
  return (samples + together - 1) / together;
}

// Ranks take whole shares in turn, so the last ranks of the last batch may have none.
SampleRange Batches::validation_range(int index, int samples, BatchShare share) const {
  const int mine = largest_share(share.ranks);
  const int first = std::min((index * share.ranks + share.rank) * mine, samples);
  return {.first = first, .count = std::min(mine, samples - first)};
}

Batch Batches::validation(int index, int samples, BatchShare share) const {
  const SampleRange range = validation_range(index, samples, share);
  const SampleRange own = part_of_batch(range.count, share.parts, share.part);
  const int first = range.first + own.first;
  Batch batch{.inputs = {}, .targets = {}, .samples = range.count};
  for (int sample = first; sample < first + own.count; ++sample) {
    append(training_tokens_ + static_cast<std::uint64_t>(sample) * context_, share, batch);
  }
  return batch;
}

}  // namespace sprat::train
