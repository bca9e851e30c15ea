// How a step's samples are shared by ranks and micro-steps, and a validation's by ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "sprat/context.hpp"
#include "train/config/config.hpp"

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

/// Of each sample of so many tokens, what the rank reads.
std::vector<ContextPiece> own_positions(int context, BatchShare share);

/// Which samples of a batch are whose. Pure.
class BatchCut {
 public:
  explicit BatchCut(const TrainConfig& config);

  /// Of a rank's share of a micro-step all samples, which ranks may have read in parts.
  SampleRange micro_batch(int micro_step, BatchShare share) const;
  /// What of that this rank reads, counted from the batch's first sample.
  SampleRange own_part(int micro_step, BatchShare share) const;
  int micro_steps() const { return micro_steps_; }
  /// The most samples that a rank of so many gets at once.
  int largest_share(int ranks) const;
  /// How many batches hold the first `samples` samples of the held-out text, if so many ranks share
  /// them; the last may be short.
  int validation_batches(int samples, int ranks) const;
  /// A share of one of them; may be empty.
  SampleRange validation_range(int index, int samples, BatchShare share) const;

 private:
  GradientOrder gradient_order_;
  int micro_steps_, batch_;
};

}  // namespace sprat::train
