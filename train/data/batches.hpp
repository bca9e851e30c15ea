// The text as training and validation samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sprat/io.hpp"
#include "train/data/batch_cut.hpp"
#include "train/data/tokenized_text.hpp"

namespace sprat::train {

/// Which samples a step takes depends on the seed and on how many came before alone. Its
/// micro-batches take consecutive parts of them, numbered by global_microbatch().
class Batches {
 public:
  /// Holds out the end of `text`. Throws Error{invalid_argument} if either part is too short.
  Batches(TokenizedText text, const TrainConfig& config);

  /// What this rank reads of its share of a micro-step of the step that begins at a global sample.
  Batch training(std::int64_t first_sample, int micro_step, BatchShare share) const;
  std::uint64_t samples_per_epoch() const { return order_.per_epoch(); }
  /// What this rank reads of its share of a batch of the held-out text; may be empty.
  Batch validation(int index, int samples, BatchShare share) const;
  /// At most all there are.
  int validation_samples(int wanted) const;

  const BatchCut& cut() const { return cut_; }
  const TokenizedText& text() const { return text_; }
  /// The first so many are to learn, all others held out.
  std::size_t training_tokens() const { return training_tokens_; }
  std::size_t validation_tokens() const { return text_.size() - training_tokens_; }

 private:
  void append(std::uint64_t begin, BatchShare share, Batch& batch) const;

  TokenizedText text_;
  std::size_t training_tokens_;
  BatchCut cut_;
  int context_;
  SampleOrder order_;
};

}  // namespace sprat::train
