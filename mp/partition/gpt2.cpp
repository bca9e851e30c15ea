// GPT-2 as a chain of layers, from the numbers of its configuration.
#include "comm/base/check.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {

std::vector<ModelPiece> gpt2_layers(const Gpt2Shape& shape) {
  require(shape.n_embd % shape.n_head == 0, "n_embd ", shape.n_embd,
          " is not a multiple of n_head ", shape.n_head);
  // In doubles: products of five such numbers are beyond 64 bits.
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double width = number(shape.n_embd), length = number(shape.n_positions);
  const double vocabulary = number(shape.vocab_size), heads = number(shape.n_head);
  const double inner = shape.n_inner > 0 ? number(shape.n_inner) : 4 * width;
  constexpr double f32 = 4, half = 2;
  const double stream = length * width * half;
  const SharedParameter embedding{.name = "wte.weight", .bytes = f32 * vocabulary * width};

  std::vector<ModelPiece> layers;
  // A look-up multiplies nothing; its output is the stream, and dropout's mask a byte each.
  layers.push_back({.name = "embedding",
                    .time = 0,
                    .parameter_bytes = f32 * length * width,
                    .activation_bytes = length * width,
                    .output_bytes = stream,
                    .shared = {}});
  // Attention: q, k, v and the output are four products of width x width; scores and their sums are
  // 2 T C each. The feed-forward: two of width x inner. Each product takes two FLOPs an element.
  const double products = 4 * width * width + 2 * width * inner;
  const double biases = 4 * width + inner + width, norms = 4 * width;
  // Korthikanti et al., Reducing Activation Recomputation, 2022: 34 bytes an element of the stream,
  // 16 of them for an inner width of 4, and 5 a score.
  const double kept = length * (18 * width + 4 * inner) + 5 * heads * length * length;
  for (std::int64_t block = 0; block < shape.n_layer; ++block) {
    layers.push_back({.name = text("h.", block),
                      .time = length * (2 * products + 4 * length * width),
                      .parameter_bytes = f32 * (products + biases + norms),
                      .activation_bytes = kept,
                      .output_bytes = stream,
                      .shared = {}});
  }
  // The norm keeps its input, the product its own, the loss the logits in f32.
  layers.push_back({.name = "head",
                    .time = length * 2 * vocabulary * width,
                    .parameter_bytes = f32 * 2 * width,
                    .activation_bytes = 2 * stream + f32 * length * vocabulary,
                    .output_bytes = 0,
                    .shared = {}});
  if (shape.tie_word_embeddings) {
    layers.front().shared = layers.back().shared = {embedding};
  } else {
    layers.front().parameter_bytes += embedding.bytes;
    layers.back().parameter_bytes += embedding.bytes;
  }
  return layers;
}

}  // namespace sprat::mp
