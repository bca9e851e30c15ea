// The text as training and validation samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sprat/io.hpp"
#include "train/config/config.hpp"
#include "train/data/tokenized_text.hpp"

namespace sprat::train {

/// Sequences of `context` tokens each, or what a rank has of them; targets[i] is the token after
/// inputs[i].
struct Batch {
  std::vector<std::int32_t> inputs, targets;
  /// Sequences of the whole micro-batch, of which these are a part where tensor ranks read their
  /// own.
  int samples = 0;
};

/// One rank's place among those that share a batch: ranks that compute parts of one model have the
/// same.
struct BatchShare {
  int rank = 0, ranks = 1;
  /// What the rank reads of each micro-batch: all, or one of as many parts as there are tensor
  /// ranks.
  int part = 0, parts = 1;
  /// Of its samples, which positions: all, or context_pieces() where ranks cut sequences.
  int context_rank = 0, context_ranks = 1;
};

/// Consecutive samples of a batch.
struct SampleRange {
  int first = 0, count = 0;
};
/// Number `index` of as many parts of a batch. Where it does not divide the first have one more.
SampleRange part_of_batch(int batch, int parts, int index);

/// One micro-batch of a rank's.
struct MicrobatchPlace {
  BatchShare share;                      ///< Whose.
  int microbatches = 1, microbatch = 0;  ///< Of so many, which.
};
/// Its number among the micro-batches of all ranks, which take a step's samples in order: in the
/// order of GradientOrder::tree those of one rank are next to each other, so that it adds a
/// subtree.
int global_microbatch(GradientOrder order, const MicrobatchPlace& place);

/// Which samples a step takes depends on the seed and on how many came before alone. Its
/// micro-batches take consecutive parts of them, numbered by global_microbatch().
class Batches {
 public:
  /// Holds out the end of `text`. Throws Error{invalid_argument} if either part is too short.
  Batches(TokenizedText text, const TrainConfig& config);

  /// What this rank reads of its share of a micro-step of the step that begins at a global sample.
  Batch training(std::int64_t first_sample, int micro_step, BatchShare share) const;
  std::uint64_t samples_per_epoch() const { return order_.per_epoch(); }
  /// The most samples that a rank of so many gets at once.
  int largest_share(int ranks) const;
  /// How many batches hold the first `samples` samples of the held-out text, if so many ranks share
  /// them; the last may be short.
  int validation_batches(int samples, int ranks) const;
  /// A share of one of them; may be empty.
  SampleRange validation_range(int index, int samples, BatchShare share) const;
  /// What this rank reads of that.
  Batch validation(int index, int samples, BatchShare share) const;
  /// At most all there are.
  int validation_samples(int wanted) const;

  const TokenizedText& text() const { return text_; }
  /// The first so many are to learn, all others held out.
  std::size_t training_tokens() const { return training_tokens_; }
  std::size_t validation_tokens() const { return text_.size() - training_tokens_; }

 private:
  void append(std::uint64_t begin, BatchShare share, Batch& batch) const;

  TokenizedText text_;
  std::size_t training_tokens_;
  GradientOrder gradient_order_;
  int micro_steps_, context_, batch_;
  SampleOrder order_;
};

}  // namespace sprat::train
