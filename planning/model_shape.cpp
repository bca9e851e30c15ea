// Shapes from names, words and files; what their layers count.
#include "planning/model_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/base/check.hpp"
#include "planning/foreign_text.hpp"

namespace sprat::planning {
namespace {

using Json = nlohmann::json;

double number(std::int64_t value) { return static_cast<double>(value); }

struct Word {
  std::string_view name;
  std::int64_t ModelShape::*value;
};
constexpr std::array words_of_shape = {
    Word{"layers", &ModelShape::layers},         Word{"width", &ModelShape::width},
    Word{"heads", &ModelShape::heads},           Word{"vocabulary", &ModelShape::vocabulary},
    Word{"inner", &ModelShape::inner},           Word{"kv_heads", &ModelShape::key_value_heads},
    Word{"head_width", &ModelShape::head_width}, Word{"positions", &ModelShape::positions},
    Word{"experts", &ModelShape::experts},       Word{"experts_used", &ModelShape::experts_used},
};

/// "width=7168"
void set_word(ModelShape& shape, std::string_view word) {
  const std::size_t sign = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, sign);
  const std::string_view digits = word.substr(std::min(sign + 1, word.size()));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  require(error == std::errc() && end == digits.data() + digits.size(), "model: \"", word,
          "\" is no NAME=NUMBER; give numbers as layers=48,width=7168,heads=64,vocabulary=50257, a "
          "file that ends in .json, or a name (sprat help plan lists them)");
  if (name == "gated" || name == "tied") {
    (name == "gated" ? shape.gated : shape.tied) = value != 0;
    return;
  }
  std::string known = "gated tied";
  for (const Word& one : words_of_shape) {
    known.append(" ").append(one.name);
    if (one.name == name) {
      shape.*one.value = value;
      return;
    }
  }
  require(false, "model: \"", word, "\" sets none of: ", known);
}

/// The first of several names that a key has in files of other makers.
const Json* first_of(const Json& root, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto found = root.find(name); found != root.end() && !found->is_null()) {
      return &*found;
    }
  }
  return nullptr;
}

std::int64_t whole(const Json& root, const std::string& origin,
                   std::initializer_list<const char*> names, std::int64_t otherwise) {
  const Json* found = first_of(root, names);
  if (found == nullptr) {
    // Models of text and pictures keep what is asked for here one level deeper.
    require(
        otherwise >= 0, origin, ": ", *names.begin(), " is missing, which the plan needs; ",
        root.contains("text_config")
            ? "write what \"text_config\" holds to a file of its own"
            : "give a config.json of Hugging Face's, a configuration of sprat train, or numbers "
              "(layers=48,width=7168,heads=64,vocabulary=50257)");
    return otherwise;
  }
  const bool fits =
      found->is_number_integer() &&
      (!found->is_number_unsigned() || std::in_range<std::int64_t>(found->get<std::uint64_t>()));
  require(fits, origin, ": ", *names.begin(), " is ", shown(*found),
          "; it is a whole number of at most 19 digits");
  return found->get<std::int64_t>();
}

/// What the file leaves out has the trainer's defaults.
ModelShape from_train_config(const Json& model, const std::string& origin) {
  ModelShape shape{.name = origin};
  shape.layers = whole(model, origin, {"layers"}, 4);
  shape.width = whole(model, origin, {"width"}, 128);
  shape.heads = whole(model, origin, {"heads"}, 4);
  shape.positions = whole(model, origin, {"context"}, 128);
  shape.vocabulary = whole(model, origin, {"vocabulary"}, 256);
  return shape;
}

/// Whether the MLP has a gate: by its activation, as Llama and its relatives name it.
bool has_gate(const Json& root) {
  const Json* activation = first_of(root, {"hidden_act", "activation_function"});
  const std::string word =
      activation != nullptr && activation->is_string() ? activation->get<std::string>() : "";
  return word == "silu" || word == "swiglu";
}

/// Keys of layers that nothing here counts: with them parameters and time would be those of another
/// model, by a factor of ten at the worst.
void refuse_uncounted(const Json& root, const std::string& origin) {
  for (const char* key :
       {"is_encoder_decoder", "kv_lora_rank", "n_shared_experts", "shared_expert_intermediate_size",
        "first_k_dense_replace", "mlp_only_layers", "attn_layer_period", "linear_num_key_heads"}) {
    const Json* value = first_of(root, {key});
    const bool none =
        value == nullptr || *value == false || *value == 0 || (value->is_array() && value->empty());
    require(none, origin, ": ", key, " is ", none ? "" : shown(*value),
            ", and the plan counts a decoder whose blocks are alike; give numbers that come near "
            "(layers=48,width=7168,heads=64,vocabulary=50257,experts=8,...)");
  }
}

/// Families whose counts are held against published ones, or have the same blocks.
void assume_family(ModelShape& shape, bool says_type) {
  constexpr std::array<std::string_view, 8> known = {"gpt2",  "gpt_neox", "llama",     "mistral",
                                                     "qwen2", "qwen3",    "qwen3_moe", "mixtral"};
  if (says_type && std::ranges::find(known, shape.name) == known.end()) {
    shape.assumed = fmt::format(
        "by its keys it is a decoder of blocks that are alike; model_type is none of {}",
        fmt::join(known, ", "));
  }
}

/// By the keys of two generations: GPT-2's short ones, and those that all others have.
ModelShape from_hugging_face(const Json& root, const std::string& origin) {
  constexpr std::int64_t needed = -1;
  refuse_uncounted(root, origin);
  const bool gpt2 = root.contains("n_embd");
  const Json* type = first_of(root, {"model_type"});
  const bool says_type = type != nullptr && type->is_string();
  ModelShape shape{.name = says_type ? printable(type->get<std::string>()) : origin};
  assume_family(shape, says_type);
  shape.layers = whole(root, origin, {"num_hidden_layers", "n_layer"}, needed);
  shape.width = whole(root, origin, {"hidden_size", "n_embd"}, needed);
  shape.heads = whole(root, origin, {"num_attention_heads", "n_head"}, needed);
  shape.vocabulary = whole(root, origin, {"vocab_size"}, needed);
  shape.key_value_heads = whole(root, origin, {"num_key_value_heads"}, 0);
  shape.head_width = whole(root, origin, {"head_dim"}, 0);
  shape.experts = whole(root, origin, {"num_local_experts", "num_experts", "n_routed_experts"}, 1);
  shape.inner = shape.experts > 1 && root.contains("moe_intermediate_size")
                    ? whole(root, origin, {"moe_intermediate_size"}, needed)
                    : whole(root, origin, {"intermediate_size", "n_inner"}, 0);
  // Of the families that are read only GPT-2's learns its positions.
  shape.positions = gpt2 ? whole(root, origin, {"n_positions", "n_ctx"}, 1024) : 0;
  shape.gated = has_gate(root);
  shape.experts_used = whole(root, origin, {"num_experts_per_tok"}, 1);
  const Json* tied = first_of(root, {"tie_word_embeddings"});
  shape.tied = tied != nullptr && tied->is_boolean() ? tied->get<bool>() : gpt2;
  return shape;
}

/// Elements of a block that products read, of all experts or of those that a token takes.
double block_matrices(const ModelShape& shape, std::int64_t experts) {
  const double width = number(shape.width);
  const double attention =
      2 * width * number(shape.attention_width()) + 2 * width * number(shape.kv_width());
  const double mlp = (shape.gated ? 3 : 2) * width * number(shape.inner_width());
  return attention + mlp * number(experts) +
         (shape.experts > 1 ? width * number(shape.experts) : 0);  // the router
}

/// Gains and biases, which every tensor rank has whole.
// They are small, but a rank that cuts its matrices eight times still has all of them.
double block_vectors(const ModelShape& shape) {
  const double width = number(shape.width);
  return shape.positions > 0 ? 4 * width + 5 * width + number(shape.inner_width()) : 2 * width;
}

/// Norms of models with learned positions have biases, the others' gains alone.
double final_norm(const ModelShape& shape) {
  return (shape.positions > 0 ? 2 : 1) * number(shape.width);
}

/// Bytes of activations that a block keeps for a token, before they are dealt to tensor ranks.
/// Korthikanti et al., Reducing Activation Recomputation, 2022, element for element, with a softmax
/// that keeps two numbers a head instead of its scores: input and output of both norms, the stream
/// between, queries with keys and values, attention's output; of the MLP what goes in and comes out
/// of the activation. Models with learned positions have GPT-2's two masks of dropout, a byte each.
// Experts keep what their tokens went through, so a token counts those that it takes.
double block_tape(const ModelShape& shape, DType precision) {
  const double width = number(shape.width), element = number(std::int64_t(size_of(precision)));
  const double stream = 4 * width;  // input, norm, middle, norm
  const double attention = 2 * number(shape.attention_width()) + 2 * number(shape.kv_width());
  const double mlp =
      (shape.gated ? 3 : 2) * number(shape.inner_width()) * number(shape.experts_used);
  const double masks = shape.positions > 0 && precision != DType::f32 ? 2 * width : 0;
  constexpr double softmax_bytes = 2 * sizeof(float);
  return element * (stream + attention + mlp) + masks + softmax_bytes * number(shape.heads);
}

/// All blocks are alike.
LayerCost block_cost(const ModelShape& shape, std::int64_t sequence, DType precision, int tensor) {
  const double width = number(shape.width), ranks = tensor;
  const double element = number(std::int64_t(size_of(precision)));
  // Causal: a query meets half of the sequence on average, in two products of two FLOPs each.
  const double queries = number(shape.attention_width());
  const double scores = 2 * number(sequence) * queries;
  const double middle = number(shape.inner_width()) * number(shape.experts_used);
  const double forward = (2 * block_matrices(shape, shape.experts_used) + scores) / ranks;
  return {.name = "",
          .parameters = block_matrices(shape, shape.experts) / ranks + block_vectors(shape),
          .forward_flops = forward,
          // What leaves the block was kept as the next one's input.
          .again_flops = forward - 2 * width * middle / ranks,
          .tape_bytes = block_tape(shape, precision) / ranks,
          .input_bytes = element * width / ranks,
          // What block_gradients() of the trainer holds: of the stream, the MLP's inside, q, k, v.
          .working_bytes = element *
                           (2 * width + std::max(width, queries) + queries + middle +
                            2 * number(shape.kv_width())) /
                           ranks,
          .is_block = true};
}

}  // namespace

std::span<const ModelShape> known_shapes() {
  constexpr const char* assumed = "layers and width: the documents give the size alone";
  static const std::array shapes = {
      ModelShape{.name = "gpt-10b",
                 .layers = 48,
                 .width = 4096,
                 .heads = 32,
                 .vocabulary = 50000,
                 .positions = 512,
                 .assumed = assumed},
      // Layers, width and heads are those of AWS's example script of that name.
      ModelShape{.name = "gpt-30b",
                 .layers = 48,
                 .width = 7168,
                 .heads = 64,
                 .vocabulary = 50000,
                 .positions = 512},
      ModelShape{.name = "gpt-60b",
                 .layers = 74,
                 .width = 8192,
                 .heads = 64,
                 .vocabulary = 50000,
                 .positions = 512,
                 .assumed = assumed},
      ModelShape{.name = "gpt-175b",
                 .layers = 96,
                 .width = 12288,
                 .heads = 96,
                 .vocabulary = 50257,
                 .positions = 2048},
      ModelShape{.name = "llama2-7b",
                 .layers = 32,
                 .width = 4096,
                 .heads = 32,
                 .vocabulary = 32000,
                 .inner = 11008,
                 .gated = true,
                 .tied = false},
      ModelShape{.name = "llama2-70b",
                 .layers = 80,
                 .width = 8192,
                 .heads = 64,
                 .vocabulary = 32000,
                 .key_value_heads = 8,
                 .inner = 28672,
                 .gated = true,
                 .tied = false},
  };
  return shapes;
}

ModelShape shape_from_words(std::string_view words) {
  for (const ModelShape& known : known_shapes()) {
    if (words == known.name) {
      return known;
    }
  }
  ModelShape shape{.name = std::string(words)};
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    set_word(shape, words.substr(begin, end - begin));
    begin = end + 1;
  }
  check_shape(shape, "model");
  return shape;
}

ModelShape shape_from_json(std::string_view json, const std::string& origin) {
  const Json root = parsed_json(json, origin, /*with_comments=*/true);
  require(root.is_object(), origin, ": this is no JSON object, such as a config.json");
  const auto model = root.find("model");
  const ModelShape shape = model != root.end() && model->is_object()
                               ? from_train_config(*model, origin)
                               : from_hugging_face(root, origin);
  check_shape(shape, origin);
  return shape;
}

/// Everything that follows divides by these numbers, or multiplies them.
void check_shape(const ModelShape& shape, const std::string& origin) {
  constexpr std::int64_t most_layers = 1024;  // a chain is cut by its square
  constexpr std::int64_t most = 1 << 24;      // so that products of them are numbers
  constexpr double most_parameters = 1e15;    // whose bytes and those of their states are, too
  const auto check = [&](std::string_view name, std::int64_t value, std::int64_t from,
                         std::int64_t to) {
    require(value >= from && value <= to, origin, ": ", name, " is ", value, "; it is from ", from,
            " to ", to);
  };
  check("layers", shape.layers, 1, most_layers);
  check("width", shape.width, 1, most);
  check("heads", shape.heads, 1, most);
  check("vocabulary", shape.vocabulary, 1, most);
  check("kv_heads", shape.key_value_heads, 0, most);
  check("head_width", shape.head_width, 0, most);
  check("inner", shape.inner, 0, most);
  check("positions", shape.positions, 0, most);
  check("experts", shape.experts, 1, most);
  check("experts_used", shape.experts_used, 1, shape.experts);
  require(shape.head_width > 0 || shape.width % shape.heads == 0, origin, ": width ", shape.width,
          " is not a multiple of heads ", shape.heads,
          ", which share it; change one of them, or give head_width");
  require(shape.heads % shape.kv_heads() == 0, origin, ": heads ", shape.heads,
          " is not a multiple of kv_heads ", shape.kv_heads(),
          "; each head of keys serves as many of queries");
  const double parameters = parameter_count(shape);
  require(parameters <= most_parameters, origin, ": these are ", fmt::format("{:.3g}", parameters),
          " parameters (", describe(shape), "); the plan counts up to ",
          fmt::format("{:.0e}", most_parameters), ": is one of the numbers too large?");
}

double parameter_count(const ModelShape& shape) {
  const double table = number(shape.vocabulary) * number(shape.width);
  return number(shape.layers) * (block_matrices(shape, shape.experts) + block_vectors(shape)) +
         table * (shape.tied ? 1 : 2) + number(shape.positions) * number(shape.width) +
         final_norm(shape);
}

double model_flops_per_token(const ModelShape& shape, std::int64_t sequence) {
  double forward = 0;
  for (const LayerCost& layer : layer_costs(shape, sequence, DType::f32, 1)) {
    forward += layer.forward_flops;
  }
  return 3 * forward;  // a backward is two such products
}

std::string describe(const ModelShape& shape) {
  std::string text =
      fmt::format("{} layers of width {}, {} heads", shape.layers, shape.width, shape.heads);
  if (shape.attention_width() != shape.width) {
    text += fmt::format(" of {}", shape.one_head());
  }
  if (shape.kv_heads() != shape.heads) {
    text += fmt::format(" ({} of keys and values)", shape.kv_heads());
  }
  text += fmt::format(", {}MLP {}", shape.gated ? "gated " : "", shape.inner_width());
  if (shape.experts > 1) {
    text +=
        fmt::format(" x {} experts of which a token takes {}", shape.experts, shape.experts_used);
  }
  return text + fmt::format(", vocabulary {}: {:.3g} B parameters", shape.vocabulary,
                            parameter_count(shape) / 1e9);
}

/// The tied head counts its parameters too: a stage that has only the head holds the matrix.
std::vector<LayerCost> layer_costs(const ModelShape& shape, std::int64_t sequence, DType precision,
                                   int tensor) {
  const double width = number(shape.width), vocabulary = number(shape.vocabulary), ranks = tensor;
  const double element = number(std::int64_t(size_of(precision)));
  std::vector<LayerCost> layers;
  const double table = vocabulary * width / ranks;
  layers.push_back({.name = "embedding", .parameters = table + number(shape.positions) * width});
  const LayerCost block = block_cost(shape, sequence, precision, tensor);
  for (std::int64_t index = 0; index < shape.layers; ++index) {
    layers.push_back(block);
    layers.back().name = fmt::format("h.{}", index);
  }
  // The norm's input and output; logits, of which narrow ones have a copy in f32 for the loss.
  const double logits = vocabulary / ranks * (precision == DType::f32 ? 4 : 6);
  layers.push_back({.name = "head",
                    .parameters = table + final_norm(shape),
                    .forward_flops = 2 * vocabulary * width / ranks,
                    .tape_bytes = 2 * element * width / ranks + logits,
                    .input_bytes = 2 * element * width / ranks + logits,
                    .working_bytes = element * width / ranks});
  return layers;
}

}  // namespace sprat::planning
