// A pre-norm block: x + attention(norm(x)), then the same with the MLP.
//
// Its backward is six short functions. The gradient of the residual stream comes in as that of the
// output; each half computes its branch's gradients from it, and then its norm adds the branch's
// part to the stream. Weights' gradients of a half need the stream's gradient as it was before that
// addition. A backward in halves keeps copies for them; a backward at once takes them in between.
#include "train/model/gpt_block.hpp"

#include <algorithm>

#include "sprat/layers.hpp"
#include "train/model/carver.hpp"
#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

using layers::AttentionShape;

std::size_t row_elements(int rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
}

AttentionShape attention_shape(const GptRows& run) {
  return {.sequences = run.rows / run.length,
          .length = run.length,
          .heads = run.shape.heads,
          .head_width = run.shape.width / run.shape.heads};
}

layers::AttentionInput attention_input_of(const GptShape& shape, const BlockTape& tape) {
  return {.query = tape.qkv,
          .key = tape.qkv + shape.width,
          .value = tape.qkv + 2 * std::ptrdiff_t{shape.width},
          .stride = 3 * shape.width};
}

layers::LinearShape linear_shape(const GptRows& run, int inputs, int outputs) {
  return {.rows = run.rows, .inputs = inputs, .outputs = outputs};
}

/// A linear layer of the unit, by the place of its weight; the bias follows it.
layers::Linear linear(const GptRows& run, const UnitValues& unit, int weight) {
  const auto values = unit[weight], bias = unit[weight + 1];
  const int outputs = static_cast<int>(bias.size());
  return {.gemm = run.gemm,
          .shape = linear_shape(run, static_cast<int>(values.size() / bias.size()), outputs),
          .weight = values,
          .bias = bias};
}

layers::LayerNorm norm(const GptRows& run, const UnitValues& unit, int first) {
  return {.shape = {.rows = run.rows, .width = run.shape.width},
          .gain = unit[first + norm_gain],
          .bias = unit[first + norm_bias]};
}

// Memory is cut for the rows that there are, not for the most: what is stored in a tier and read
// again lies at the beginning.
BlockTape carve_tape(const GptShape& shape, int rows, Carver& carver) {
  const auto take = [&](int width) { return carver.take(row_elements(rows, width)); };
  return {.mean = take(1),
          .reciprocal = take(1),
          .normed = take(shape.width),
          .qkv = take(3 * shape.width),
          .highest = take(shape.heads),
          .share = take(shape.heads),
          .attended = take(shape.width),
          .middle = take(shape.width),
          .middle_mean = take(1),
          .middle_reciprocal = take(1),
          .middle_normed = take(shape.width),
          .up = take(shape.hidden()),
          .gated = take(shape.hidden())};
}

/// Six widths of a row instead of fifteen.
BlockTape carve_passing(const GptShape& shape, int rows, Carver& carver) {
  const auto take = [&](int width) { return carver.take(row_elements(rows, width)); };
  BlockTape tape{.mean = take(1),
                 .reciprocal = take(1),
                 .normed = take(shape.width),
                 .qkv = take(shape.hidden()),
                 .highest = take(shape.heads),
                 .share = take(shape.heads),
                 .middle = take(shape.width)};
  // Behind attention its input is free, and the MLP is as wide as query, key, value and output.
  tape.attended = tape.qkv == nullptr ? nullptr : tape.qkv + row_elements(rows, 3 * shape.width);
  // The first norm's numbers are for a backward, which does not come.
  tape.middle_mean = tape.mean;
  tape.middle_reciprocal = tape.reciprocal;
  tape.middle_normed = tape.normed;
  tape.up = tape.gated = tape.qkv;
  return tape;
}

BlockGradients carve_passing_gradients(const GptShape& shape, int rows, Carver& carver) {
  const auto take = [&](int width) { return carver.take(row_elements(rows, width)); };
  return {.up = take(shape.hidden()),
          .middle_normed = take(shape.width),
          .qkv = take(3 * shape.width),
          .normed = take(shape.width)};
}

BlockGradients carve_gradients(const GptShape& shape, int rows, Carver& carver) {
  BlockGradients gradients = carve_passing_gradients(shape, rows, carver);
  gradients.middle = carver.take(row_elements(rows, shape.width));
  return gradients;
}

layers::LayerNormShape norm_shape(const BlockBackward& block) {
  return {.rows = block.run.rows, .width = block.run.shape.width};
}

layers::LayerNormPass first_norm_pass(const BlockBackward& block) {
  return {.x = block.x,
          .mean = block.tape.mean,
          .reciprocal = block.tape.reciprocal,
          .dy = block.gradients.normed};
}

layers::LayerNormPass second_norm_pass(const BlockBackward& block) {
  return {.x = block.tape.middle,
          .mean = block.tape.middle_mean,
          .reciprocal = block.tape.middle_reciprocal,
          .dy = block.gradients.middle_normed};
}

/// Gradients of the MLP's inner values, from that of the output to that of what the norm wrote.
void mlp_input(const BlockBackward& block, const UnitValues& unit) {
  const GptRows& run = block.run;
  const BlockGradients& gradients = block.gradients;
  layers::linear_backward_input(linear(run, unit, down_weight), gradients.output, gradients.up);
  layers::gelu_backward_input({block.tape.up, row_elements(run.rows, run.shape.hidden())},
                              gradients.up);
  layers::linear_backward_input(linear(run, unit, up_weight), gradients.up,
                                gradients.middle_normed);
}

/// Adds to the stream's gradient, as attention_norm_input() does.
void mlp_norm_input(const BlockBackward& block, const UnitValues& unit, float* stream) {
  layers::layer_norm_backward_input(norm_shape(block), unit[second_norm + norm_gain],
                                    second_norm_pass(block), stream);
}

/// The same of attention.
void attention_input(const BlockBackward& block, const UnitValues& unit) {
  const GptRows& run = block.run;
  const BlockGradients& gradients = block.gradients;
  // The gradient of attention's output is needed no longer than here, where the input's comes.
  float* const attended = gradients.normed;
  layers::linear_backward_input(linear(run, unit, projection_weight), gradients.middle, attended);
  layers::attention_backward_input(
      run.gemm, attention_shape(run),
      {.input = attention_input_of(run.shape, block.tape),
       .out = block.tape.attended,
       .dout = attended,
       .out_stride = run.shape.width,
       .rows = {.highest = block.tape.highest, .share = block.tape.share},
       .dquery = gradients.qkv,
       .dkey = gradients.qkv + run.shape.width,
       .dvalue = gradients.qkv + 2 * std::ptrdiff_t{run.shape.width},
       .workspace = run.attention_workspace});
  layers::linear_backward_input(linear(run, unit, qkv_weight), gradients.qkv, gradients.normed);
}

void attention_norm_input(const BlockBackward& block, const UnitValues& unit, float* stream) {
  layers::layer_norm_backward_input(norm_shape(block), unit[first_norm + norm_gain],
                                    first_norm_pass(block), stream);
}

/// Of the linear layer by the place of its weight: adds to that gradient and to the bias's.
void linear_weight(const GptRows& run, const UnitGradients& unit, int weight, const float* x,
                   const float* dy) {
  const auto sums = unit[weight], bias = unit[weight + 1];
  const int outputs = static_cast<int>(bias.size());
  layers::linear_backward_weight(
      run.gemm, linear_shape(run, static_cast<int>(sums.size() / bias.size()), outputs),
      {.x = x, .dy = dy, .weight = sums, .bias = bias});
}

void mlp_weight(const BlockBackward& block, const UnitGradients& unit) {
  linear_weight(block.run, unit, down_weight, block.tape.gated, block.gradients.output);
  linear_weight(block.run, unit, up_weight, block.tape.middle_normed, block.gradients.up);
  layers::layer_norm_backward_weight(norm_shape(block), second_norm_pass(block),
                                     unit[second_norm + norm_gain], unit[second_norm + norm_bias]);
}

void attention_weight(const BlockBackward& block, const UnitGradients& unit) {
  linear_weight(block.run, unit, projection_weight, block.tape.attended, block.gradients.middle);
  linear_weight(block.run, unit, qkv_weight, block.tape.normed, block.gradients.qkv);
  layers::layer_norm_backward_weight(norm_shape(block), first_norm_pass(block),
                                     unit[first_norm + norm_gain], unit[first_norm + norm_bias]);
}

template <class Carve>
auto carved(const GptShape& shape, int rows, float* memory, const Carve& carve) {
  Carver carver(memory);
  return carve(shape, rows, carver);
}

template <class Carve>
std::size_t carved_count(const GptShape& shape, int rows, const Carve& carve) {
  Carver carver(nullptr);
  carve(shape, rows, carver);
  return carver.count();
}

}  // namespace

BlockTape block_tape(const GptShape& shape, int rows, float* memory) {
  return carved(shape, rows, memory, carve_tape);
}
std::size_t block_tape_count(const GptShape& shape, int rows) {
  return carved_count(shape, rows, carve_tape);
}
BlockTape passing_block_tape(const GptShape& shape, int rows, float* memory) {
  return carved(shape, rows, memory, carve_passing);
}
std::size_t passing_block_tape_count(const GptShape& shape, int rows) {
  return carved_count(shape, rows, carve_passing);
}
BlockGradients block_gradients(const GptShape& shape, int rows, float* memory) {
  return carved(shape, rows, memory, carve_gradients);
}
std::size_t block_gradients_count(const GptShape& shape, int rows) {
  return carved_count(shape, rows, carve_gradients);
}

BlockGradients passing_block_gradients(const GptShape& shape, int rows, float* memory) {
  return carved(shape, rows, memory, carve_passing_gradients);
}
std::size_t passing_block_gradients_count(const GptShape& shape, int rows) {
  return carved_count(shape, rows, carve_passing_gradients);
}

std::size_t attention_workspace(const GptShape& shape) {
  // Blocks of queries and keys have a largest size, so beyond it no length needs more.
  const AttentionShape longest{.sequences = 1,
                               .length = std::max(shape.context, layers::attention_block),
                               .heads = shape.heads,
                               .head_width = shape.width / shape.heads};
  return std::max(layers::attention_forward_workspace(longest),
                  layers::attention_backward_workspace(longest));
}

void block_forward_tape(const GptRows& run, const UnitValues& unit, const float* x,
                        const BlockTape& tape) {
  layers::layer_norm_forward(norm(run, unit, first_norm), x, tape.normed, tape.mean,
                             tape.reciprocal);
  layers::linear_forward(linear(run, unit, qkv_weight), tape.normed, tape.qkv);
  layers::attention_forward(run.gemm, attention_shape(run),
                            {.input = attention_input_of(run.shape, tape),
                             .out = tape.attended,
                             .out_stride = run.shape.width,
                             .rows = {.highest = tape.highest, .share = tape.share},
                             .workspace = run.attention_workspace});
  layers::linear_forward_onto(linear(run, unit, projection_weight), x, tape.attended, tape.middle);

  layers::layer_norm_forward(norm(run, unit, second_norm), tape.middle, tape.middle_normed,
                             tape.middle_mean, tape.middle_reciprocal);
  layers::linear_forward(linear(run, unit, up_weight), tape.middle_normed, tape.up);
  layers::gelu_forward({tape.up, row_elements(run.rows, run.shape.hidden())}, tape.gated);
}

void block_forward_output(const GptRows& run, const UnitValues& unit, const BlockTape& tape,
                          float* y) {
  layers::linear_forward_onto(linear(run, unit, down_weight), tape.middle, tape.gated, y);
}

void block_backward_input(const BlockBackward& block, const UnitValues& unit, float* dx) {
  const std::size_t stream = row_elements(block.run.rows, block.run.shape.width);
  mlp_input(block, unit);
  std::copy_n(block.gradients.output, stream, block.gradients.middle);
  mlp_norm_input(block, unit, block.gradients.middle);
  attention_input(block, unit);
  std::copy_n(block.gradients.middle, stream, dx);
  attention_norm_input(block, unit, dx);
}

void block_backward_weight(const BlockBackward& block, const UnitGradients& unit) {
  mlp_weight(block, unit);
  attention_weight(block, unit);
}

void block_backward(BlockBackward block, const UnitValues& values, const UnitGradients& unit,
                    float* stream) {
  // Each half's weights take the stream's gradient before the norm of that half adds to it.
  BlockGradients gradients = block.gradients;
  gradients.output = gradients.middle = stream;
  const BlockBackward here{
      .run = block.run, .x = block.x, .tape = block.tape, .gradients = gradients};
  mlp_input(here, values);
  mlp_weight(here, unit);
  mlp_norm_input(here, values, stream);
  attention_input(here, values);
  attention_weight(here, unit);
  attention_norm_input(here, values, stream);
}

}  // namespace sprat::train
