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

layers::PositionShape position_shape(const GptRows& run) {
  return {.rows = run.rows, .length = run.length, .width = run.shape.width};
}

layers::LinearShape logits_shape(const GptRows& run) {
  return {.rows = run.rows, .inputs = run.shape.width, .outputs = run.shape.vocabulary};
}

layers::LayerNormShape norm_shape(const GptRows& run) {
  return {.rows = run.rows, .width = run.shape.width};
}

layers::LayerNormPass norm_pass(const HeadTape& tape, const float* dnormed) {
  return {.x = tape.x, .mean = tape.mean, .reciprocal = tape.reciprocal, .dy = dnormed};
}

HeadTape carve(const GptShape& shape, int rows, Carver& carver) {
  const auto take = [&](int width) {
    return carver.take(static_cast<std::size_t>(rows) * static_cast<std::size_t>(width));
  };
  return {.x = take(shape.width),
          .mean = take(1),
          .reciprocal = take(1),
          .normed = take(shape.width),
          .logits = take(shape.vocabulary),
          .highest = take(1),
          .share = take(1)};
}

}  // namespace

void embedding_forward_tokens(const GptRows& run, const UnitValues& table,
                              std::span<const std::int32_t> tokens, float* y) {
  layers::embedding_forward(table_shape(run.shape), tokens, table[table_values], y);
}
void embedding_forward_positions(const GptRows& run, const UnitValues& positions, float* y) {
  layers::position_forward(position_shape(run), positions[table_values], y);
}
void embedding_backward_tokens(const GptRows& run, const UnitGradients& table,
                               std::span<const std::int32_t> tokens, const float* dy) {
  layers::embedding_backward_weight(table_shape(run.shape), tokens, dy, table[table_values]);
}
void embedding_backward_positions(const GptRows& run, const UnitGradients& positions,
                                  const float* dy) {
  layers::position_backward_weight(position_shape(run), dy, positions[table_values]);
}

HeadTape head_tape(const GptShape& shape, int rows, float* memory) {
  Carver carver(memory);
  return carve(shape, rows, carver);
}
std::size_t head_tape_count(const GptShape& shape, int rows) {
  Carver carver(nullptr);
  carve(shape, rows, carver);
  return carver.count();
}

void head_forward_norm(const GptRows& run, const UnitValues& norm, const HeadTape& tape) {
  layers::layer_norm_forward(
      {.shape = norm_shape(run), .gain = norm[norm_gain], .bias = norm[norm_bias]}, tape.x,
      tape.normed, tape.mean, tape.reciprocal);
}

void head_forward_logits(const GptRows& run, const UnitValues& head, const HeadTape& tape) {
  layers::linear_forward(
      {.gemm = run.gemm, .shape = logits_shape(run), .weight = head[table_values]}, tape.normed,
      tape.logits);
}

double head_forward_loss(const GptRows& run, std::span<const std::int32_t> targets,
                         const HeadTape& tape, std::span<double> losses) {
  layers::cross_entropy_forward(
      {.vocabulary = run.shape.vocabulary, .targets = targets}, tape.logits,
      {.highest = tape.highest, .share = tape.share, .loss = losses.data()});
  // In the order of rows, so that a micro-batch's loss depends on nothing but its rows.
  return std::accumulate(losses.begin(), losses.begin() + std::ssize(targets), 0.0);
}

void head_backward_logits(const GptRows& run, const UnitValues& head,
                          std::span<const std::int32_t> targets, float scale, const HeadTape& tape,
                          float* dnormed) {
  // In place: nobody reads logits again, and the weights' gradients want what they become.
  layers::cross_entropy_backward_input({.vocabulary = run.shape.vocabulary, .targets = targets},
                                       {.highest = tape.highest, .share = tape.share}, scale,
                                       tape.logits);
  layers::linear_backward_input(
      {.gemm = run.gemm, .shape = logits_shape(run), .weight = head[table_values]}, tape.logits,
      dnormed);
}

void head_backward_norm(const GptRows& run, const UnitValues& norm, const HeadTape& tape,
                        const float* dnormed, float* dx) {
  // Nothing but the norm reads the stream behind the last block, so there is no gradient to add to.
  std::fill_n(dx, static_cast<std::size_t>(run.rows) * static_cast<std::size_t>(run.shape.width),
              0.0f);
  layers::layer_norm_backward_input(norm_shape(run), norm[norm_gain], norm_pass(tape, dnormed), dx);
}

void head_backward_logits_weight(const GptRows& run, const UnitGradients& head,
                                 const HeadTape& tape) {
  layers::linear_backward_weight(
      run.gemm, logits_shape(run),
      {.x = tape.normed, .dy = tape.logits, .weight = head[table_values]});
}

void head_backward_norm_weight(const GptRows& run, const UnitGradients& norm, const HeadTape& tape,
                               const float* dnormed) {
  layers::layer_norm_backward_weight(norm_shape(run), norm_pass(tape, dnormed), norm[norm_gain],
                                     norm[norm_bias]);
}

}  // namespace sprat::train
