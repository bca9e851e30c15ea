// Each function is of one unit, so that a sharded model has to hold but one at a time: the table
// and positions are added one after the other, and the norm ends before the head's table is needed.
#include "train/model/gpt_head.hpp"

#include <algorithm>
#include <numeric>

#include "sprat/layers.hpp"
#include "train/model/carver.hpp"
#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

layers::EmbeddingShape table_shape(const GptShape& shape) {
  return {.vocabulary = shape.vocabulary, .width = shape.width};
}

tensor::EmbeddingPass embedding(const GptRows& run, std::span<const std::int32_t> tokens) {
  return {.shape = table_shape(run.shape), .tokens = tokens, .workspace = run.workspaces.exchange};
}

int row_pieces(const GptRows& run) { return run.group.own_row_pieces(run.gemm.sum_pieces()); }

layers::PositionShape position_shape(const GptRows& run) {
  return {.rows = run.extents.own_rows,
          .length = run.length,
          .width = run.shape.width,
          .first = run.first_position,
          .first_row = run.extents.first_row,
          .left_out = run.left_out,
          .row_pieces = row_pieces(run)};
}

/// Without values, as gradients of weights take it.
layers::Linear logits_layer(const GptRows& run) {
  return {.gemm = run.gemm,
          .shape = {.rows = run.extents.rows,
                    .inputs = run.shape.width,
                    .outputs = run.extents.vocabulary},
          .weight = {}};
}
layers::Linear logits_layer(const GptRows& run, const UnitValues& head) {
  layers::Linear layer = logits_layer(run);
  layer.weight = head[table_values];
  return layer;
}

layers::CrossEntropy loss_layer(const GptRows& run, std::span<const std::int32_t> targets) {
  return {.vocabulary = run.shape.vocabulary, .targets = targets, .pieces = run.gemm.sum_pieces()};
}

layers::LayerNormShape final_norm_shape(const GptRows& run) {
  return {.rows = run.extents.own_rows, .width = run.shape.width, .row_pieces = row_pieces(run)};
}

layers::LayerNormPass norm_pass(const HeadTape& tape, const float* dnormed) {
  return {.x = tape.x, .mean = tape.mean, .reciprocal = tape.reciprocal, .dy = dnormed};
}

HeadTape carve(const GptExtents& extents, Carver& carver) {
  const auto take = [&](int rows, int width) {
    return carver.take(static_cast<std::size_t>(rows) * static_cast<std::size_t>(width));
  };
  const int own = extents.own_rows, all = extents.rows;
  return {.x = take(own, extents.width),
          .mean = take(own, 1),
          .reciprocal = take(own, 1),
          .normed = take(own, extents.width),
          .logits = take(all, extents.vocabulary),
          .highest = take(all, 1),
          .share = take(all, 1)};
}

}  // namespace

void embedding_forward_tokens(const GptRows& run, const UnitValues& table,
                              std::span<const std::int32_t> tokens, float* y) {
  tensor::EmbeddingPass pass = embedding(run, tokens);
  pass.table = table[table_values];
  tensor::embedding_forward(run.group, pass, y);
}
void embedding_forward_positions(const GptRows& run, const UnitValues& positions, float* y) {
  layers::position_forward(position_shape(run), positions[table_values], y);
}
void embedding_backward_tokens(const GptRows& run, const UnitGradients& table,
                               std::span<const std::int32_t> tokens, const float* dy) {
  tensor::embedding_backward_weight(run.group, embedding(run, tokens), dy, table[table_values]);
}
void embedding_backward_positions(const GptRows& run, const UnitGradients& positions,
                                  const float* dy) {
  tensor::PartialGradients partial(run.group, run.workspaces.partial_gradients);
  layers::position_backward_weight(position_shape(run), dy, partial.of(positions[table_values]),
                                   run.workspaces.row_sums);
  partial.start();
  partial.finish();
}

HeadTape head_tape(const GptExtents& extents, float* memory) {
  Carver carver(memory);
  return carve(extents, carver);
}
std::size_t head_tape_count(const GptExtents& extents) {
  Carver carver(nullptr);
  carve(extents, carver);
  return carver.count();
}

void head_forward_norm(const GptRows& run, const UnitValues& norm, const HeadTape& tape) {
  layers::layer_norm_forward(
      {.shape = final_norm_shape(run), .gain = norm[norm_gain], .bias = norm[norm_bias]}, tape.x,
      tape.normed, tape.mean, tape.reciprocal);
}

void head_forward_logits(const GptRows& run, const UnitValues& head, const HeadTape& tape) {
  tensor::column_forward(run.group, {.layer = logits_layer(run, head),
                                     .x = tape.normed,
                                     .y = tape.logits,
                                     .workspace = run.workspaces.exchange});
}
void head_forward_logits_of(const GptRows& run, const UnitValues& head, const float* normed,
                            float* logits) {
  layers::linear_forward(logits_layer(run, head), normed, logits);
}

double head_forward_loss(const GptRows& run, std::span<const std::int32_t> targets,
                         const HeadTape& tape, std::span<double> losses) {
  tensor::cross_entropy_forward(
      run.group, {.layer = loss_layer(run, targets),
                  .logits = tape.logits,
                  .rows = {.highest = tape.highest, .share = tape.share, .loss = losses.data()},
                  .workspace = run.workspaces.exchange});
  // Row after row, so that a micro-batch's loss depends on nothing but its rows.
  return std::accumulate(losses.begin(), losses.begin() + std::ssize(targets), 0.0);
}

namespace {

/// In place: nobody reads logits again, and the weights' gradients want what they become.
tensor::LinearBackward logits_backward(const GptRows& run, const layers::Linear& layer,
                                       const HeadTape& tape, float* dnormed) {
  return {.layer = layer,
          .x = tape.normed,
          .dy = tape.logits,
          .dx = dnormed,
          .workspace = run.workspaces.exchange};
}

void loss_backward(const GptRows& run, std::span<const std::int32_t> targets, float scale,
                   const HeadTape& tape) {
  tensor::cross_entropy_backward_input(run.group, loss_layer(run, targets),
                                       {.highest = tape.highest, .share = tape.share}, scale,
                                       tape.logits);
}

}  // namespace

void head_backward_logits(const GptRows& run, const UnitValues& head,
                          std::span<const std::int32_t> targets, float scale, const HeadTape& tape,
                          float* dnormed) {
  loss_backward(run, targets, scale, tape);
  const layers::Linear layer = logits_layer(run, head);
  tensor::column_backward_input(run.group, logits_backward(run, layer, tape, dnormed)).wait();
}

void head_backward_logits_and_weight(const GptRows& run, const UnitValues& head,
                                     const UnitGradients& gradients,
                                     std::span<const std::int32_t> targets, float scale,
                                     const HeadTape& tape, float* dnormed) {
  loss_backward(run, targets, scale, tape);
  const layers::Linear layer = logits_layer(run, head);
  tensor::LinearBackward pass = logits_backward(run, layer, tape, dnormed);
  pass.weight = gradients[table_values];
  tensor::column_backward(run.group, pass);
}

void head_backward_norm(const GptRows& run, const UnitValues& norm, const HeadTape& tape,
                        const float* dnormed, float* dx) {
  // Nothing but the norm reads the stream behind the last block, so there is no gradient to add to.
  std::fill_n(
      dx,
      static_cast<std::size_t>(run.extents.own_rows) * static_cast<std::size_t>(run.shape.width),
      0.0f);
  layers::layer_norm_backward_input(final_norm_shape(run), norm[norm_gain],
                                    norm_pass(tape, dnormed), dx);
}

void head_backward_logits_weight(const GptRows& run, const UnitGradients& head,
                                 const HeadTape& tape) {
  const layers::Linear layer = logits_layer(run);
  tensor::LinearBackward pass = logits_backward(run, layer, tape, nullptr);
  pass.weight = head[table_values];
  tensor::column_backward_weight(run.group, pass);
}

void head_backward_norm_weight(const GptRows& run, const UnitGradients& norm, const HeadTape& tape,
                               const float* dnormed) {
  tensor::PartialGradients partial(run.group, run.workspaces.partial_gradients);
  layers::layer_norm_backward_weight(final_norm_shape(run), norm_pass(tape, dnormed),
                                     partial.of(norm[norm_gain]), partial.of(norm[norm_bias]),
                                     run.workspaces.row_sums);
  partial.start();
  partial.finish();
}

}  // namespace sprat::train
