// A pre-norm block: x + attention(norm(x)), then the same with the MLP.
//
// In its backward the gradient of the residual stream comes in as that of the output; each half
// computes its branch's gradients from it, and then its norm adds the branch's part to the stream.
// Weights' gradients of a half need the stream's gradient as it was before that addition. A
// backward in halves keeps copies for them; a backward at once takes them in between, layer by
// layer, so that what tensor ranks exchange of an input's gradient travels while the weights' is
// computed.
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
  return {.sequences = run.extents.rows / run.length,
          .length = run.length,
          .heads = run.extents.heads,
          .head_width = run.shape.width / run.shape.heads};
}

void attention_forward(const GptRows& run, const layers::AttentionForward& pass) {
  const AttentionShape shape = attention_shape(run);
  run.context == nullptr ? layers::attention_forward(run.gemm, shape, pass)
                         : run.context->forward(run.gemm, pass, shape.sequences);
}

void attention_backward_input(const GptRows& run, const layers::AttentionBackward& pass) {
  const AttentionShape shape = attention_shape(run);
  run.context == nullptr ? layers::attention_backward_input(run.gemm, shape, pass)
                         : run.context->backward_input(run.gemm, pass, shape.sequences);
}

layers::AttentionInput attention_input_of(const GptExtents& extents, const BlockTape& tape) {
  const std::ptrdiff_t width = extents.attention_width;
  return {.query = tape.qkv,
          .key = tape.qkv + width,
          .value = tape.qkv + 2 * width,
          .stride = 3 * extents.attention_width};
}

layers::LinearShape linear_shape(const GptRows& run, int weight, int inputs, int outputs) {
  // Query, key and value are one layer, of which a rank has a part of each.
  return {.rows = run.extents.rows,
          .inputs = inputs,
          .outputs = outputs,
          .output_groups = weight == qkv_weight ? 3 : 1};
}

layers::LayerNormShape norm_shape(const GptRows& run) {
  return {.rows = run.extents.own_rows,
          .width = run.shape.width,
          .row_pieces = run.group.own_row_pieces(run.gemm.sum_pieces())};
}

/// A linear layer of the unit, by the place of its weight; the bias follows it.
layers::Linear linear(const GptRows& run, const UnitValues& unit, int weight) {
  const auto values = unit[weight], bias = unit[weight + 1];
  const int outputs = static_cast<int>(bias.size());
  return {
      .gemm = run.gemm,
      .shape = linear_shape(run, weight, static_cast<int>(values.size() / bias.size()), outputs),
      .weight = values,
      .bias = bias};
}

layers::LayerNorm norm(const GptRows& run, const UnitValues& unit, int first) {
  return {
      .shape = norm_shape(run), .gain = unit[first + norm_gain], .bias = unit[first + norm_bias]};
}

/// Rows of a tape.
struct Taker {
  const GptExtents& extents;
  Carver& carver;
  float* own(int width) const { return carver.take(row_elements(extents.own_rows, width)); }
  float* all(int width) const { return carver.take(row_elements(extents.rows, width)); }
};

// Memory is cut for the rows that there are, not for the most: what is stored in a tier and read
// again lies at the beginning.
BlockTape carve_tape(const GptExtents& extents, Carver& carver) {
  const Taker take{extents, carver};
  return {.mean = take.own(1),
          .reciprocal = take.own(1),
          .normed = take.own(extents.width),
          .qkv = take.all(3 * extents.attention_width),
          .highest = take.all(extents.heads),
          .share = take.all(extents.heads),
          .attended = take.all(extents.attention_width),
          .middle = take.own(extents.width),
          .middle_mean = take.own(1),
          .middle_reciprocal = take.own(1),
          .middle_normed = take.own(extents.width),
          .up = take.all(extents.hidden),
          .gated = take.all(extents.hidden)};
}

/// Six widths of a row instead of fifteen.
BlockTape carve_passing(const GptExtents& extents, Carver& carver) {
  const Taker take{extents, carver};
  BlockTape tape{.mean = take.own(1),
                 .reciprocal = take.own(1),
                 .normed = take.own(extents.width),
                 .qkv = take.all(extents.hidden),
                 .highest = take.all(extents.heads),
                 .share = take.all(extents.heads),
                 .middle = take.own(extents.width)};
  // Behind attention its input is free, and the MLP is as wide as query, key, value and output.
  tape.attended = tape.qkv == nullptr
                      ? nullptr
                      : tape.qkv + row_elements(extents.rows, 3 * extents.attention_width);
  // The first norm's numbers are for a backward, which does not come.
  tape.middle_mean = tape.mean;
  tape.middle_reciprocal = tape.reciprocal;
  tape.middle_normed = tape.normed;
  tape.up = tape.gated = tape.qkv;
  return tape;
}

BlockGradients carve_passing_gradients(const GptExtents& extents, Carver& carver) {
  const Taker take{extents, carver};
  BlockGradients gradients{.up = take.all(extents.hidden),
                           .middle_normed = take.own(extents.width),
                           .qkv = take.all(3 * extents.attention_width)};
  // The gradient of attention's output is needed no longer than until the input's comes.
  gradients.attended = gradients.normed =
      carver.take(std::max(row_elements(extents.own_rows, extents.width),
                           row_elements(extents.rows, extents.attention_width)));
  return gradients;
}

BlockGradients carve_gradients(const GptExtents& extents, Carver& carver) {
  BlockGradients gradients = carve_passing_gradients(extents, carver);
  gradients.middle = carver.take(row_elements(extents.own_rows, extents.width));
  return gradients;
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

/// Of the linear layer by the place of its weight: what its backward reads and writes.
struct LinearPlace {
  int weight;
  const float *x, *dy;
  float* dx;
};
LinearPlace down(const BlockBackward& block) {
  return {down_weight, block.tape.gated, block.gradients.output, block.gradients.up};
}
LinearPlace up(const BlockBackward& block) {
  return {up_weight, block.tape.middle_normed, block.gradients.up, block.gradients.middle_normed};
}
LinearPlace projection(const BlockBackward& block) {
  return {projection_weight, block.tape.attended, block.gradients.middle, block.gradients.attended};
}
LinearPlace qkv(const BlockBackward& block) {
  return {qkv_weight, block.tape.normed, block.gradients.qkv, block.gradients.normed};
}

tensor::LinearBackward backward_of(const GptRows& run, const layers::Linear& layer,
                                   const LinearPlace& place) {
  return {.layer = layer,
          .x = place.x,
          .dy = place.dy,
          .dx = place.dx,
          .workspace = run.workspaces.exchange};
}
tensor::LinearBackward backward_of(const GptRows& run, const layers::Linear& layer,
                                   const LinearPlace& place, const UnitGradients& unit) {
  tensor::LinearBackward pass = backward_of(run, layer, place);
  pass.weight = unit[place.weight];
  pass.bias = unit[place.weight + 1];
  return pass;
}

void gelu_input(const BlockBackward& block) {
  const GptExtents& extents = block.run.extents;
  layers::gelu_backward_input({block.tape.up, row_elements(extents.rows, extents.hidden)},
                              block.gradients.up);
}

void heads_input(const BlockBackward& block) {
  const GptRows& run = block.run;
  const std::ptrdiff_t width = run.extents.attention_width;
  attention_backward_input(run, {.input = attention_input_of(run.extents, block.tape),
                                 .out = block.tape.attended,
                                 .dout = block.gradients.attended,
                                 .out_stride = run.extents.attention_width,
                                 .rows = {.highest = block.tape.highest, .share = block.tape.share},
                                 .dquery = block.gradients.qkv,
                                 .dkey = block.gradients.qkv + width,
                                 .dvalue = block.gradients.qkv + 2 * width,
                                 .workspace = run.workspaces.attention});
}

/// Gradients of the MLP's inner values, from that of the output to that of what the norm wrote.
void mlp_input(const BlockBackward& block, const UnitValues& unit) {
  const GptRows& run = block.run;
  tensor::row_backward_input(run.group,
                             backward_of(run, linear(run, unit, down_weight), down(block)));
  gelu_input(block);
  tensor::column_backward_input(run.group,
                                backward_of(run, linear(run, unit, up_weight), up(block)))
      .wait();
}
/// The same of attention.
void attention_input(const BlockBackward& block, const UnitValues& unit) {
  const GptRows& run = block.run;
  tensor::row_backward_input(
      run.group, backward_of(run, linear(run, unit, projection_weight), projection(block)));
  heads_input(block);
  tensor::column_backward_input(run.group,
                                backward_of(run, linear(run, unit, qkv_weight), qkv(block)))
      .wait();
}

/// Adds to the stream's gradient.
void norm_input(const GptRows& run, const UnitValues& unit, int first,
                const layers::LayerNormPass& pass, float* stream) {
  layers::layer_norm_backward_input(norm_shape(run), unit[first + norm_gain], pass, stream);
}
void norm_weight(const GptRows& run, const UnitGradients& unit, int first,
                 const layers::LayerNormPass& pass, tensor::PartialGradients& partial) {
  layers::layer_norm_backward_weight(norm_shape(run), pass, partial.of(unit[first + norm_gain]),
                                     partial.of(unit[first + norm_bias]), run.workspaces.row_sums);
}

/// The layer as the gradient of its weights takes it, which reads no values.
layers::Linear linear_without_values(const GptRows& run, const UnitGradients& unit, int weight) {
  const std::size_t outputs = unit[weight + 1].size();
  return {.gemm = run.gemm,
          .shape = linear_shape(run, weight, static_cast<int>(unit[weight].size() / outputs),
                                static_cast<int>(outputs)),
          .weight = {}};
}
void row_weight(const GptRows& run, const UnitGradients& unit, const LinearPlace& place) {
  const layers::Linear layer = linear_without_values(run, unit, place.weight);
  tensor::row_backward_weight(run.group, backward_of(run, layer, place, unit));
}
void column_weight(const GptRows& run, const UnitGradients& unit, const LinearPlace& place) {
  const layers::Linear layer = linear_without_values(run, unit, place.weight);
  tensor::column_backward_weight(run.group, backward_of(run, layer, place, unit));
}

template <class Carve>
auto carved(const GptExtents& extents, float* memory, const Carve& carve) {
  Carver carver(memory);
  return carve(extents, carver);
}

template <class Carve>
std::size_t carved_count(const GptExtents& extents, const Carve& carve) {
  Carver carver(nullptr);
  carve(extents, carver);
  return carver.count();
}

}  // namespace

BlockTape block_tape(const GptExtents& extents, float* memory) {
  return carved(extents, memory, carve_tape);
}
std::size_t block_tape_count(const GptExtents& extents) {
  return carved_count(extents, carve_tape);
}
BlockTape passing_block_tape(const GptExtents& extents, float* memory) {
  return carved(extents, memory, carve_passing);
}
std::size_t passing_block_tape_count(const GptExtents& extents) {
  return carved_count(extents, carve_passing);
}
BlockGradients block_gradients(const GptExtents& extents, float* memory) {
  return carved(extents, memory, carve_gradients);
}
std::size_t block_gradients_count(const GptExtents& extents) {
  return carved_count(extents, carve_gradients);
}

BlockGradients passing_block_gradients(const GptExtents& extents, float* memory) {
  return carved(extents, memory, carve_passing_gradients);
}
std::size_t passing_block_gradients_count(const GptExtents& extents) {
  return carved_count(extents, carve_passing_gradients);
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
  const GptExtents& extents = run.extents;
  const std::span<float> workspace = run.workspaces.exchange;
  layers::layer_norm_forward(norm(run, unit, first_norm), x, tape.normed, tape.mean,
                             tape.reciprocal);
  tensor::column_forward(run.group, {.layer = linear(run, unit, qkv_weight),
                                     .x = tape.normed,
                                     .y = tape.qkv,
                                     .workspace = workspace});
  attention_forward(run, {.input = attention_input_of(extents, tape),
                          .out = tape.attended,
                          .out_stride = extents.attention_width,
                          .rows = {.highest = tape.highest, .share = tape.share},
                          .workspace = run.workspaces.attention});
  tensor::row_forward(run.group, {.layer = linear(run, unit, projection_weight),
                                  .residual = x,
                                  .x = tape.attended,
                                  .y = tape.middle,
                                  .workspace = workspace});

  layers::layer_norm_forward(norm(run, unit, second_norm), tape.middle, tape.middle_normed,
                             tape.middle_mean, tape.middle_reciprocal);
  tensor::column_forward(run.group, {.layer = linear(run, unit, up_weight),
                                     .x = tape.middle_normed,
                                     .y = tape.up,
                                     .workspace = workspace});
  layers::gelu_forward({tape.up, row_elements(extents.rows, extents.hidden)}, tape.gated);
}

void block_forward_output(const GptRows& run, const UnitValues& unit, const BlockTape& tape,
                          float* y) {
  tensor::row_forward(run.group, {.layer = linear(run, unit, down_weight),
                                  .residual = tape.middle,
                                  .x = tape.gated,
                                  .y = y,
                                  .workspace = run.workspaces.exchange});
}

void block_backward_input(const BlockBackward& block, const UnitValues& unit, float* dx) {
  const GptRows& run = block.run;
  const std::size_t stream = row_elements(run.extents.own_rows, run.extents.width);
  mlp_input(block, unit);
  std::copy_n(block.gradients.output, stream, block.gradients.middle);
  norm_input(run, unit, second_norm, second_norm_pass(block), block.gradients.middle);
  attention_input(block, unit);
  std::copy_n(block.gradients.middle, stream, dx);
  norm_input(run, unit, first_norm, first_norm_pass(block), dx);
}

void block_backward_weight(const BlockBackward& block, const UnitGradients& unit) {
  const GptRows& run = block.run;
  // The norms' sums over ranks travel while the products are computed.
  tensor::PartialGradients partial(run.group, run.workspaces.partial_gradients);
  norm_weight(run, unit, second_norm, second_norm_pass(block), partial);
  norm_weight(run, unit, first_norm, first_norm_pass(block), partial);
  partial.start();
  row_weight(run, unit, down(block));
  column_weight(run, unit, up(block));
  row_weight(run, unit, projection(block));
  column_weight(run, unit, qkv(block));
  partial.finish();
}

void block_backward(BlockBackward block, const UnitValues& values, const UnitGradients& unit,
                    float* stream) {
  // Each half's weights take the stream's gradient before the norm of that half adds to it.
  const GptRows& run = block.run;
  BlockGradients gradients = block.gradients;
  gradients.output = gradients.middle = stream;
  const BlockBackward here{.run = run, .x = block.x, .tape = block.tape, .gradients = gradients};
  tensor::PartialGradients partial(run.group, run.workspaces.partial_gradients);
  const auto whole = [&](const LinearPlace& place, const auto& backward) {
    const layers::Linear layer = linear(run, values, place.weight);
    backward(run.group, backward_of(run, layer, place, unit));
  };
  whole(down(here), tensor::row_backward);
  gelu_input(here);
  whole(up(here), tensor::column_backward);
  norm_input(run, values, second_norm, second_norm_pass(here), stream);
  norm_weight(run, unit, second_norm, second_norm_pass(here), partial);
  whole(projection(here), tensor::row_backward);
  heads_input(here);
  whole(qkv(here), tensor::column_backward);
  norm_input(run, values, first_norm, first_norm_pass(here), stream);
  norm_weight(run, unit, first_norm, first_norm_pass(here), partial);
  partial.start();
  partial.finish();
}

}  // namespace sprat::train
