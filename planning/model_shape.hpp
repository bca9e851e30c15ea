// What a model is made of, as far as memory and time depend on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/buffer.hpp"

namespace sprat::planning {

/// A decoder: an embedding, blocks of attention and MLP, a head.
struct ModelShape {
  std::string name;  ///< For people.
  std::int64_t layers = 0, width = 0, heads = 0, vocabulary = 0;
  std::int64_t key_value_heads = 0;  ///< 0: as many as heads.
  std::int64_t head_width = 0;       ///< 0: the heads share the width.
  std::int64_t inner = 0;            ///< Of the MLP; 0: four times the width.
  std::int64_t positions = 0;        ///< Rows of a learned table; 0: none, as with rotary ones.
  bool gated = false;                ///< The MLP has two products up and one down.
  bool tied = true;                  ///< The head is the embedding's matrix.
  std::int64_t experts = 1, experts_used = 1;  ///< MLPs of a block, and those that a token takes.
  std::string assumed = {};  ///< What of it nobody has said, for people; empty: nothing.

  std::int64_t inner_width() const { return inner > 0 ? inner : 4 * width; }
  std::int64_t kv_heads() const { return key_value_heads > 0 ? key_value_heads : heads; }
  std::int64_t one_head() const { return head_width > 0 ? head_width : width / heads; }
  std::int64_t attention_width() const { return one_head() * heads; }  ///< Of all queries.
  std::int64_t kv_width() const { return one_head() * kv_heads(); }
};

/// Shapes known by name: those of the reference configurations of SMP's documents. Where a document
/// gives a size alone, layers and width are assumed.
std::span<const ModelShape> known_shapes();

/// One of: a known name; numbers, "layers=48,width=7168,heads=64,vocabulary=50257", with kv_heads,
/// head_width, inner, positions, gated, tied, experts, experts_used. Throws Error{invalid_argument}
/// that shows the word it does not understand and what is known.
ModelShape shape_from_words(std::string_view words);
/// A config.json of Hugging Face's (GPT-2, GPT-NeoX, Llama, Mistral, Qwen2, Qwen3 with experts or
/// without, Mixtral; others by these keys, which `assumed` then says), or a configuration of `sprat
/// train`. Throws Error{invalid_argument} that begins with `origin` and names the key that is
/// missing or wrong, or is of layers that are not counted here.
ModelShape shape_from_json(std::string_view json, const std::string& origin);
/// Throws Error{invalid_argument} that begins with `origin` if the numbers are no model, or one
/// beyond what is planned: 1,024 layers, 10^15 parameters.
void check_shape(const ModelShape& shape, const std::string& origin);

/// Elements of all parameters; a tied head counts once.
double parameter_count(const ModelShape& shape);
/// Forward and backward of one token of a sequence of so many, attention causal, recomputation not
/// counted: what model flops utilisation is of.
double model_flops_per_token(const ModelShape& shape, std::int64_t sequence);
/// "48 layers of width 7168, 64 heads, MLP 28672, vocabulary 50257: 30.0 B parameters".
std::string describe(const ModelShape& shape);

/// One layer of the chain on one of `tensor` ranks that share it, for one token of the micro-batch.
struct LayerCost {
  std::string name;
  double parameters = 0;     ///< Elements on the rank.
  double forward_flops = 0;  ///< Of the rank.
  double again_flops = 0;    ///< Of a forward that is made again: its last product is not read.
  double tape_bytes = 0;     ///< Kept from forward to backward.
  double input_bytes = 0;    ///< The part of it that a checkpoint keeps.
  double working_bytes = 0;  ///< Gradients on their way through the layer's backward.
  bool is_block = false;
};
/// The embedding, the blocks, the head. Activations are of the precision; attention keeps two
/// numbers a query and head, never its scores. Tensor ranks have their own rows between the cut
/// layers (SMP's optimize "memory").
std::vector<LayerCost> layer_costs(const ModelShape& shape, std::int64_t sequence, DType precision,
                                   int tensor);

}  // namespace sprat::planning
