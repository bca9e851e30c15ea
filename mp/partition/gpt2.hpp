// GPT-2 as a chain of layers, from the numbers of its configuration.
#pragma once

#include <cstdint>
#include <vector>

#include "mp/partition/piece.hpp"

namespace sprat::mp {

/// By the names of Hugging Face's config.json; 1 at least, each.
struct Gpt2Shape {
  std::int64_t n_layer = 12, n_embd = 768, n_head = 12, vocab_size = 50257, n_positions = 1024;
  std::int64_t n_inner = 0;  ///< 0: four times n_embd.
  bool tie_word_embeddings = true;
};

/// The embedding, the blocks, the last norm with the head: time in FLOPs of one sequence's forward,
/// parameters in f32, activations as 16-bit training keeps them. A tied head shares the embedding's
/// matrix.
std::vector<ModelPiece> gpt2_layers(const Gpt2Shape& shape);

}  // namespace sprat::mp
