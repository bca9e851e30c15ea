// Cutting samples out of the text.
#include "train/data/batches.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

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
                    tokens, text.codec().is_bytes() ? "bytes" : "tokens", tokens - validation,
                    validation, config.data.validation_share, context, 2 * context + 1,
                    context + 1));
  }
  return tokens - validation;
}

}  // namespace

Batches::Batches(TokenizedText text, const TrainConfig& config)
    : text_(std::move(text)),
      training_tokens_(split(text_, config)),
      cut_(config),
      context_(config.model.context),
      order_(config.sharding.seed, training_tokens_ - 1, static_cast<std::uint64_t>(context_)) {}

void Batches::append(std::uint64_t begin, BatchShare share, Batch& batch) const {
  const auto copy = [&](const ContextPiece& piece) {
    const auto first = begin + static_cast<std::uint64_t>(piece.first);
    const auto count = static_cast<std::size_t>(piece.count);
    text_.copy(first, count, batch.inputs);
    text_.copy(first + 1, count, batch.targets);
  };
  std::ranges::for_each(own_positions(context_, share), copy);
}

Batch Batches::training(std::int64_t first_sample, int micro_step, BatchShare share) const {
  const SampleRange own = cut_.own_part(micro_step, share);
  Batch batch{.inputs = {}, .targets = {}, .samples = cut_.micro_batch(micro_step, share).count};
  for (int i = 0; i < own.count; ++i) {
    const std::int64_t sample = first_sample + own.first + i;
    append(order_.begin(static_cast<std::uint64_t>(sample)), share, batch);
  }
  return batch;
}

int Batches::validation_samples(int wanted) const {
  const std::size_t all = (validation_tokens() - 1) / static_cast<std::size_t>(context_);
  return static_cast<int>(std::min(all, static_cast<std::size_t>(wanted)));
}

Batch Batches::validation(int index, int samples, BatchShare share) const {
  const SampleRange range = cut_.validation_range(index, samples, share);
  const SampleRange own = part_of_batch(range.count, share.parts, share.part);
  const int first = range.first + own.first;
  Batch batch{.inputs = {}, .targets = {}, .samples = range.count};
  for (int sample = first; sample < first + own.count; ++sample) {
    append(training_tokens_ + static_cast<std::uint64_t>(sample) * context_, share, batch);
  }
  return batch;
}

}  // namespace sprat::train
