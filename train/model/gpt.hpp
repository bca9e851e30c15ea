// A GPT-2-style decoder over bytes: embeddings, pre-norm blocks, a head tied to the embedding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sprat/fsdp.hpp"
#include "sprat/mp.hpp"
#include "train/model/floats.hpp"
#include "train/model/parameters.hpp"

namespace sprat::train {

struct GptShape {
  int layers = 4;
  int width = 128;  ///< A multiple of heads.
  int heads = 4;
  int context = 128;  ///< Tokens that a prediction may look back on.

  static constexpr int vocabulary = 256;
  int hidden() const { return 4 * width; }
};

/// The embedding, one unit for each block, the final norm. Initial values are GPT-2's, and depend
/// on `seed`, a parameter's name and an element's index alone.
std::vector<UnitSpec> gpt_units(const GptShape& shape, std::uint64_t seed);
/// The order in which forward() visits units, and that of a step: forward() and backward() for each
/// micro-batch.
std::vector<int> gpt_forward_order(const GptShape& shape);
std::vector<Visit> gpt_visits(const GptShape& shape, int micro_steps);

/// One rank's model: shape, memory for activations, and the explicit passes. One thread at a time.
class Gpt {
 public:
  /// Memory for up to `batch` sequences of shape.context tokens.
  Gpt(const GptShape& shape, int batch, std::shared_ptr<const GemmBackend> gemm);
  Gpt(Gpt&&) noexcept;
  ~Gpt();

  /// Of `inputs.size() / length` sequences: the sum over all tokens of -log p(targets[i]), in nats.
  /// length <= context; no sequences at all are fine. Prepares backward().
  double forward(Parameters& parameters, std::span<const std::uint8_t> inputs,
                 std::span<const std::uint8_t> targets, float loss_scale = 1.0f);
  /// Adds to the gradients of what the last forward() summed, times its loss_scale, and reduces
  /// each unit.
  void backward(Parameters& parameters);
  /// The logits of the token that follows `inputs`, one sequence of at most `context` tokens. Valid
  /// until the next call.
  std::span<const float> predict(Parameters& parameters, std::span<const std::uint8_t> inputs);

 private:
  struct Block;
  /// What a norm reads, and what its forward pass keeps of it for the backward one.
  struct Normed {
    Floats input, mean, reciprocal;  ///< The last two by row.
  };
  void begin(std::span<const std::uint8_t> inputs, int length);
  void embed_and_run_blocks(Parameters& parameters);
  void head(Parameters& parameters, int first_row);
  void block_forward(const Parameters& parameters, int index);
  void block_backward(Parameters& parameters, int index);
  void head_backward(Parameters& parameters);
  void norm_forward(const Parameters& parameters, int unit, int first, Normed& normed, float* y);
  void norm_backward(Parameters& parameters, int unit, int first, const Normed& normed);

  GptShape shape_;
  int capacity_;  // rows: tokens of a full batch
  std::shared_ptr<const GemmBackend> gemm_;

  int length_ = 0, rows_ = 0;         // of the pass under way
  std::vector<std::uint8_t> tokens_;  // its inputs
  std::vector<Block> blocks_;
  Normed last_;  // of the last norm, whose input is the residual stream after all blocks
  Floats final_, logits_;
  // Gradients: of the residual stream, of what a layer reads and writes.
  Floats dstream_, dnarrow_, dwide_, dscores_;
};

}  // namespace sprat::train
