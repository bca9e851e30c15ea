// The GPT's parameters: names, shapes, initial values.
#include <cmath>
#include <string>

#include "train/model/gpt.hpp"
#include "train/model/gpt_index.hpp"
#include "train/model/random.hpp"

namespace sprat::train {
namespace {

constexpr double weight_deviation = 0.02;

ParameterSpec weight(const std::string& name, int rows, int columns, double deviation,
                     std::uint64_t seed) {
  return {.name = name,
          .shape = {rows, columns},
          .decay = true,
          .initial = [stream = RandomStream(seed, name), deviation](std::uint64_t index) {
            return static_cast<float>(deviation * stream.normal(index));
          }};
}

ParameterSpec constant(const std::string& name, int size, float value) {
  return {.name = name, .shape = {size}, .decay = false, .initial = [value](std::uint64_t) {
            return value;
          }};
}

UnitSpec block(const GptShape& shape, int index, std::uint64_t seed) {
  const std::string name = "h." + std::to_string(index);
  // GPT-2 scales what is added to the residual stream by its 2 * layers additions.
  const double onto_stream = weight_deviation / std::sqrt(2.0 * shape.layers);
  const int width = shape.width, hidden = shape.hidden();
  return {.name = name,
          .parameters = {
              constant(name + ".ln_1.weight", width, 1.0f),
              constant(name + ".ln_1.bias", width, 0.0f),
              weight(name + ".attn.c_attn.weight", 3 * width, width, weight_deviation, seed),
              constant(name + ".attn.c_attn.bias", 3 * width, 0.0f),
              weight(name + ".attn.c_proj.weight", width, width, onto_stream, seed),
              constant(name + ".attn.c_proj.bias", width, 0.0f),
              constant(name + ".ln_2.weight", width, 1.0f),
              constant(name + ".ln_2.bias", width, 0.0f),
              weight(name + ".mlp.c_fc.weight", hidden, width, weight_deviation, seed),
              constant(name + ".mlp.c_fc.bias", hidden, 0.0f),
              weight(name + ".mlp.c_proj.weight", width, hidden, onto_stream, seed),
              constant(name + ".mlp.c_proj.bias", width, 0.0f),
          }};
}

}  // namespace

std::vector<UnitSpec> gpt_units(const GptShape& shape, std::uint64_t seed) {
  std::vector<UnitSpec> units;
  units.push_back(
      {.name = "embedding",
       .parameters = {
           weight("wte.weight", GptShape::vocabulary, shape.width, weight_deviation, seed),
           weight("wpe.weight", shape.context, shape.width, weight_deviation, seed)}});
  for (int index = 0; index < shape.layers; ++index) {
    units.push_back(block(shape, index, seed));
  }
  units.push_back({.name = "ln_f",
                   .parameters = {constant("ln_f.weight", shape.width, 1.0f),
                                  constant("ln_f.bias", shape.width, 0.0f)}});
  return units;
}

std::vector<int> gpt_forward_order(const GptShape& shape) {
  std::vector<int> order = {embedding_unit};
  for (int index = 0; index < shape.layers; ++index) {
    order.push_back(block_unit(index));
  }
  order.push_back(norm_unit(shape));
  order.push_back(embedding_unit);  // the tied head
  return order;
}

std::vector<Visit> gpt_visits(const GptShape& shape, int micro_steps) {
  const std::vector<int> forward = gpt_forward_order(shape);
  const std::vector<int> backward(forward.rbegin(), forward.rend());
  return plain_visits(forward, backward, micro_steps);
}

}  // namespace sprat::train
