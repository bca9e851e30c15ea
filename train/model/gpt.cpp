// The GPT's passes: forward, backward, and prediction of one token.
#include "train/model/gpt.hpp"

#include <algorithm>

#include "train/model/attention.hpp"
#include "train/model/gpt_index.hpp"
#include "train/model/layers.hpp"

namespace sprat::train {

/// What a block's forward keeps for its backward. Rows of tokens unless said otherwise.
struct Gpt::Block {
  Block(const GptShape& shape, std::size_t rows)
      : before{Floats(rows * shape.width), Floats(rows), Floats(rows)},
        middle{Floats(rows * shape.width), Floats(rows), Floats(rows)},
        normed(rows * shape.width),
        qkv(rows * 3 * shape.width),
        weights(rows * shape.context * shape.heads),
        attended(rows * shape.width),
        middle_normed(rows * shape.width),
        up(rows * shape.hidden()),
        gated(rows * shape.hidden()) {}

  Normed before;                    // the residual stream before the block,
  Normed middle;                    // and after attention
  Floats normed, qkv;               // into attention
  Floats weights;                   // softmax: length x length for each sequence and head
  Floats attended;                  // out of attention's heads
  Floats middle_normed, up, gated;  // through the MLP
};

namespace {

/// One parameter's layer, by its place in a unit: the bias follows the weight.
Linear linear(const GemmBackend& gemm, const Parameters& parameters, int unit, int weight,
              int rows) {
  const auto values = parameters.values(unit, weight);
  const auto bias = parameters.values(unit, weight + 1);
  const int outputs = static_cast<int>(bias.size());
  return {.gemm = gemm,
          .rows = rows,
          .inputs = static_cast<int>(values.size() / bias.size()),
          .outputs = outputs,
          .weight = values,
          .bias = bias};
}

LayerNorm norm(const Parameters& parameters, int unit, int first, int rows) {
  const auto gain = parameters.values(unit, first + norm_gain);
  return {.rows = rows,
          .width = static_cast<int>(gain.size()),
          .gain = gain,
          .bias = parameters.values(unit, first + norm_bias)};
}

}  // namespace

Gpt::Gpt(const GptShape& shape, int batch, std::shared_ptr<const GemmBackend> gemm)
    : shape_(shape), capacity_(batch * shape.context), gemm_(std::move(gemm)) {
  const std::size_t rows = static_cast<std::size_t>(capacity_), width = shape.width;
  blocks_.reserve(shape.layers);
  for (int index = 0; index < shape.layers; ++index) {
    blocks_.emplace_back(shape, rows);
  }
  for (Floats* one : {&last_.input, &final_, &dstream_, &dnarrow_}) {
    one->resize(rows * width);
  }
  last_.mean.resize(rows);
  last_.reciprocal.resize(rows);
  logits_.resize(rows * GptShape::vocabulary);
  dwide_.resize(rows * shape.hidden());
  dscores_.resize(static_cast<std::size_t>(shape.context) * shape.context);
  tokens_.reserve(rows);
}
Gpt::Gpt(Gpt&&) noexcept = default;
Gpt::~Gpt() = default;

void Gpt::begin(std::span<const std::uint8_t> inputs, int length) {
  tokens_.assign(inputs.begin(), inputs.end());
  rows_ = static_cast<int>(inputs.size());
  length_ = length;
}

double Gpt::forward(Parameters& parameters, std::span<const std::uint8_t> inputs,
                    std::span<const std::uint8_t> targets, float loss_scale) {
  begin(inputs, shape_.context);
  embed_and_run_blocks(parameters);
  parameters.acquire(embedding_unit);
  head(parameters, 0);
  parameters.release(embedding_unit);
  return cross_entropy(
      std::span(logits_).first(static_cast<std::size_t>(rows_) * GptShape::vocabulary), targets,
      loss_scale);
}

std::span<const float> Gpt::predict(Parameters& parameters, std::span<const std::uint8_t> inputs) {
  begin(inputs, static_cast<int>(inputs.size()));
  embed_and_run_blocks(parameters);
  parameters.acquire(embedding_unit);
  head(parameters, rows_ - 1);
  parameters.release(embedding_unit);
  return std::span(logits_).first(GptShape::vocabulary);
}

void Gpt::embed_and_run_blocks(Parameters& parameters) {
  parameters.acquire(embedding_unit);
  embedding_forward({.width = shape_.width, .length = length_, .tokens = tokens_},
                    parameters.values(embedding_unit, token_table),
                    parameters.values(embedding_unit, position_table),
                    blocks_[0].before.input.data());
  parameters.release(embedding_unit);
  for (int index = 0; index < shape_.layers; ++index) {
    parameters.acquire(block_unit(index));
    block_forward(parameters, index);
    parameters.release(block_unit(index));
  }
  const int unit = norm_unit(shape_);
  parameters.acquire(unit);
  norm_forward(parameters, unit, 0, last_, final_.data());
  parameters.release(unit);
}

/// Logits of the rows from `first_row` on.
void Gpt::head(Parameters& parameters, int first_row) {
  gemm_->multiply({.rows = rows_ - first_row,
                   .columns = GptShape::vocabulary,
                   .inner = shape_.width,
                   .a = {final_.data() + std::ptrdiff_t{first_row} * shape_.width, shape_.width},
                   .b = {parameters.values(embedding_unit, token_table).data(), shape_.width, true},
                   .out = {logits_.data(), GptShape::vocabulary}});
}

void Gpt::block_forward(const Parameters& parameters, int index) {
  Block& block = blocks_[index];
  const int unit = block_unit(index);
  Floats& output = index + 1 < shape_.layers ? blocks_[index + 1].before.input : last_.input;
  const auto layer = [&](int weight) { return linear(*gemm_, parameters, unit, weight, rows_); };

  norm_forward(parameters, unit, first_norm, block.before, block.normed.data());
  linear_forward(layer(qkv_weight), block.normed.data(), block.qkv.data());
  attention_forward({.gemm = *gemm_,
                     .batch = rows_ / length_,
                     .length = length_,
                     .heads = shape_.heads,
                     .width = shape_.width},
                    block.qkv.data(), block.weights.data(), block.attended.data());
  linear_forward_onto(layer(projection_weight), block.before.input.data(), block.attended.data(),
                      block.middle.input.data());

  norm_forward(parameters, unit, second_norm, block.middle, block.middle_normed.data());
  linear_forward(layer(up_weight), block.middle_normed.data(), block.up.data());
  gelu_forward(std::span(block.up).first(static_cast<std::size_t>(rows_) * shape_.hidden()),
               block.gated.data());
  linear_forward_onto(layer(down_weight), block.middle.input.data(), block.gated.data(),
                      output.data());
}

void Gpt::backward(Parameters& parameters) {
  head_backward(parameters);
  for (int index = shape_.layers - 1; index >= 0; --index) {
    parameters.acquire(block_unit(index));
    block_backward(parameters, index);
    parameters.reduce(block_unit(index));
    parameters.release(block_unit(index));
  }
  parameters.acquire(embedding_unit);
  embedding_backward({.width = shape_.width, .length = length_, .tokens = tokens_}, dstream_.data(),
                     parameters.gradients(embedding_unit, token_table),
                     parameters.gradients(embedding_unit, position_table));
  parameters.reduce(embedding_unit);
  parameters.release(embedding_unit);
}

void Gpt::head_backward(Parameters& parameters) {
  const int width = shape_.width;
  parameters.acquire(embedding_unit);
  gemm_->multiply({.rows = rows_,
                   .columns = width,
                   .inner = GptShape::vocabulary,
                   .a = {logits_.data(), GptShape::vocabulary},
                   .b = {parameters.values(embedding_unit, token_table).data(), width},
                   .out = {dnarrow_.data(), width}});
  gemm_->multiply({.rows = GptShape::vocabulary,
                   .columns = width,
                   .inner = rows_,
                   .a = {logits_.data(), GptShape::vocabulary, true},
                   .b = {final_.data(), width},
                   .beta = 1.0f,
                   .out = {parameters.gradients(embedding_unit, token_table).data(), width}});
  parameters.release(embedding_unit);

  const int unit = norm_unit(shape_);
  parameters.acquire(unit);
  std::fill(dstream_.begin(), dstream_.end(), 0.0f);
  norm_backward(parameters, unit, 0, last_);
  parameters.reduce(unit);
  parameters.release(unit);
}

void Gpt::norm_forward(const Parameters& parameters, int unit, int first, Normed& normed,
                       float* y) {
  layer_norm_forward(norm(parameters, unit, first, rows_), normed.input.data(), y,
                     normed.mean.data(), normed.reciprocal.data());
}

/// The gradient of what the norm wrote is in dnarrow_; that of its input goes to the stream.
void Gpt::norm_backward(Parameters& parameters, int unit, int first, const Normed& normed) {
  layer_norm_backward(norm(parameters, unit, first, rows_),
                      {.x = normed.input.data(),
                       .mean = normed.mean.data(),
                       .reciprocal = normed.reciprocal.data(),
                       .dy = dnarrow_.data(),
                       .dx = dstream_.data(),
                       .gain = parameters.gradients(unit, first + norm_gain),
                       .bias = parameters.gradients(unit, first + norm_bias)});
}

void Gpt::block_backward(Parameters& parameters, int index) {
  const Block& block = blocks_[index];
  const int unit = block_unit(index);
  const auto backward = [&](int weight, const float* x, const float* dy, float* dx) {
    linear_backward(linear(*gemm_, parameters, unit, weight, rows_),
                    {.x = x,
                     .dy = dy,
                     .dx = dx,
                     .weight = parameters.gradients(unit, weight),
                     .bias = parameters.gradients(unit, weight + 1)});
  };

  backward(down_weight, block.gated.data(), dstream_.data(), dwide_.data());
  gelu_backward(std::span(block.up).first(static_cast<std::size_t>(rows_) * shape_.hidden()),
                dwide_.data());
  backward(up_weight, block.middle_normed.data(), dwide_.data(), dnarrow_.data());
  norm_backward(parameters, unit, second_norm, block.middle);

  backward(projection_weight, block.attended.data(), dstream_.data(), dnarrow_.data());
  attention_backward({.gemm = *gemm_,
                      .batch = rows_ / length_,
                      .length = length_,
                      .heads = shape_.heads,
                      .width = shape_.width},
                     {.qkv = block.qkv.data(),
                      .weights = block.weights.data(),
                      .dout = dnarrow_.data(),
                      .dqkv = dwide_.data(),
                      .scratch = dscores_.data()});
  backward(qkv_weight, block.normed.data(), dwide_.data(), dnarrow_.data());
  norm_backward(parameters, unit, first_norm, block.before);
}

}  // namespace sprat::train
