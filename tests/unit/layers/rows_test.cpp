// Bits depend neither on how rows are split into calls, nor on who else computes: what lets
// micro-batches, and the ranks that have them, give what the whole batch gives.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "sprat/layers.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::layers_test::rows {
namespace {

constexpr int length = 5, sequences = 4, row_count = length * sequences;
constexpr int heads = 2, head_width = 6, width = heads * head_width, hidden = 20, vocabulary = 33;

/// Values of a small model's layers, and the batch.
struct Model {
  const std::vector<float> table = random(vocabulary * width, 1),
                           positions = random(length * width, 2), gain = random(width, 3),
                           bias = random(width, 4), qkv = random(3 * width * width, 5),
                           qkv_bias = random(3 * width, 6), up = random(hidden * width, 7),
                           down = random(width * hidden, 8), down_bias = random(width, 9),
                           dattended = random(row_count * width, 10);
  std::vector<std::int32_t> tokens, targets;
  const std::shared_ptr<const GemmBackend> gemm = open_gemm_backend("reference");

  Model() {
    for (int row = 0; row < row_count; ++row) {
      tokens.push_back(row * row * 7 % vocabulary);
      targets.push_back(row * 5 % vocabulary);
    }
  }
};

/// All that the layers write for the batch; a call is given some rows of each.
struct Batch {
  static std::vector<float> of(int columns) {
    return std::vector<float>(static_cast<std::size_t>(row_count * columns));
  }
  std::vector<float> x = of(width), normed = of(width), mean = of(1), reciprocal = of(1),
                     qkv = of(3 * width), highest = of(heads), share = of(heads),
                     attended = of(width), up = of(hidden), gated = of(hidden), y = of(width),
                     logits = of(vocabulary), peak = of(1), part = of(1);
  std::vector<double> loss = std::vector<double>(row_count);
  std::vector<float> dy = of(width), dhidden = of(hidden), dqkv = of(3 * width),
                     dnormed = of(width), dx = of(width);
  std::vector<float> dtable = std::vector<float>(vocabulary * width),
                     dpositions = std::vector<float>(length * width),
                     dgain = std::vector<float>(width), dbias = dgain, ddown_bias = dgain;

  std::vector<std::vector<float>> all() const {
    return {x,          normed, mean,     reciprocal, qkv,
            highest,    share,  attended, up,         gated,
            y,          logits, peak,     part,       dy,
            dhidden,    dqkv,   dnormed,  dx,         dtable,
            dpositions, dgain,  dbias,    ddown_bias, {loss.begin(), loss.end()}};
  }
};

/// The sequences [first, first + count), forward.
void forward(const Model& model, Batch& batch, int first, int count) {
  const int begin = first * length, rows = count * length;
  const auto at = [&](std::vector<float>& matrix, int columns) {
    return matrix.data() + std::ptrdiff_t{begin} * columns;
  };
  const auto linear = [&](const std::vector<float>& weight, const std::vector<float>& bias,
                          int inputs) {
    const int outputs = static_cast<int>(weight.size()) / inputs;
    return layers::Linear{.gemm = *model.gemm,
                          .shape = {.rows = rows, .inputs = inputs, .outputs = outputs},
                          .weight = weight,
                          .bias = bias};
  };
  const auto tokens = std::span(model.tokens).subspan(std::size_t(begin), std::size_t(rows));
  float* x = at(batch.x, width);
  layers::embedding_forward({.vocabulary = vocabulary, .width = width}, tokens, model.table, x);
  layers::position_forward({.rows = rows, .length = length, .width = width}, model.positions, x);
  layers::layer_norm_forward(
      {.shape = {.rows = rows, .width = width}, .gain = model.gain, .bias = model.bias}, x,
      at(batch.normed, width), at(batch.mean, 1), at(batch.reciprocal, 1));
  float* qkv = at(batch.qkv, 3 * width);
  layers::linear_forward(linear(model.qkv, model.qkv_bias, width), at(batch.normed, width), qkv);
  const layers::AttentionShape shape{
      .sequences = count, .length = length, .heads = heads, .head_width = head_width};
  std::vector<float> workspace(layers::attention_forward_workspace(shape));
  layers::attention_forward(*model.gemm, shape,
                            {.input = {qkv, qkv + width, qkv + 2 * width, 3 * width},
                             .out = at(batch.attended, width),
                             .out_stride = width,
                             .rows = {at(batch.highest, heads), at(batch.share, heads)},
                             .workspace = workspace});
  layers::linear_forward(linear(model.up, {}, width), at(batch.attended, width),
                         at(batch.up, hidden));
  layers::gelu_forward({at(batch.up, hidden), static_cast<std::size_t>(rows * hidden)},
                       at(batch.gated, hidden));
  layers::linear_forward_onto(linear(model.down, model.down_bias, hidden), x,
                              at(batch.gated, hidden), at(batch.y, width));
  layers::linear_forward(linear(model.table, {}, width), at(batch.y, width),
                         at(batch.logits, vocabulary));
}

/// And backward, by each layer's kernels.
void backward(const Model& model, Batch& batch, int first, int count) {
  const int begin = first * length, rows = count * length;
  const auto at = [&](auto& matrix, int columns) {
    return matrix.data() + std::ptrdiff_t{begin} * columns;
  };
  const auto linear = [&](const std::vector<float>& weight, int inputs) {
    const int outputs = static_cast<int>(weight.size()) / inputs;
    return layers::Linear{.gemm = *model.gemm,
                          .shape = {.rows = rows, .inputs = inputs, .outputs = outputs},
                          .weight = weight};
  };
  const auto some = [&](const std::vector<std::int32_t>& all) {
    return std::span(all).subspan(std::size_t(begin), std::size_t(rows));
  };
  const layers::CrossEntropy head{.vocabulary = vocabulary, .targets = some(model.targets)};
  const layers::CrossEntropyRows kept{
      .highest = at(batch.peak, 1), .share = at(batch.part, 1), .loss = at(batch.loss, 1)};
  layers::cross_entropy_forward(head, at(batch.logits, vocabulary), kept);
  layers::cross_entropy_backward_input(head, kept, 0.3f, at(batch.logits, vocabulary));
  layers::linear_backward_input(linear(model.table, width), at(batch.logits, vocabulary),
                                at(batch.dy, width));
  layers::linear_backward_input(linear(model.down, hidden), at(batch.dy, width),
                                at(batch.dhidden, hidden));
  layers::gelu_backward_input({at(batch.up, hidden), static_cast<std::size_t>(rows * hidden)},
                              at(batch.dhidden, hidden));
  const layers::AttentionShape shape{
      .sequences = count, .length = length, .heads = heads, .head_width = head_width};
  std::vector<float> workspace(layers::attention_backward_workspace(shape));
  float *qkv = at(batch.qkv, 3 * width), *dqkv = at(batch.dqkv, 3 * width);
  layers::attention_backward_input(*model.gemm, shape,
                                   {.input = {qkv, qkv + width, qkv + 2 * width, 3 * width},
                                    .out = at(batch.attended, width),
                                    .dout = model.dattended.data() + std::ptrdiff_t{begin} * width,
                                    .out_stride = width,
                                    .rows = {at(batch.highest, heads), at(batch.share, heads)},
                                    .dquery = dqkv,
                                    .dkey = dqkv + width,
                                    .dvalue = dqkv + 2 * width,
                                    .workspace = workspace});
  layers::linear_backward_input(linear(model.qkv, width), dqkv, at(batch.dnormed, width));
  const layers::LayerNormShape norm{.rows = rows, .width = width};
  const layers::LayerNormPass pass{.x = at(batch.x, width),
                                   .mean = at(batch.mean, 1),
                                   .reciprocal = at(batch.reciprocal, 1),
                                   .dy = at(batch.dnormed, width)};
  layers::layer_norm_backward_input(norm, model.gain, pass, at(batch.dx, width));
  layers::layer_norm_backward_weight(norm, pass, batch.dgain, batch.dbias);
  layers::embedding_backward_weight({.vocabulary = vocabulary, .width = width}, some(model.tokens),
                                    at(batch.dx, width), batch.dtable);
  layers::position_backward_weight({.rows = rows, .length = length, .width = width},
                                   at(batch.dx, width), batch.dpositions);
  // The weight's own gradient is a product over rows; the bias's is added row by row.
  std::vector<float> product(model.down.size());
  layers::linear_backward_weight(*model.gemm, {.rows = rows, .inputs = hidden, .outputs = width},
                                 {.x = at(batch.gated, hidden),
                                  .dy = at(batch.dy, width),
                                  .weight = product,
                                  .bias = batch.ddown_bias});
}

/// One micro-batch after another; `ends` are the sequences that they end before.
std::vector<std::vector<float>> run(const std::vector<int>& ends) {
  const Model model;
  Batch batch;
  int first = 0;
  for (const int end : ends) {
    forward(model, batch, first, end - first);
    backward(model, batch, first, end - first);
    first = end;
  }
  return batch.all();
}

TEST(LayerKernels, micro_batches_have_the_bits_of_the_whole_batch) {
  const auto whole = run({sequences});
  EXPECT_EQ(run({1, 2, 3, 4}), whole);
  EXPECT_EQ(run({3, 3, 4}), whole);
}

TEST(LayerThreads, have_the_bits_of_one) {
  const auto whole = run({sequences});
  std::vector<std::future<std::vector<std::vector<float>>>> others;
  for (int thread = 0; thread < 3; ++thread) {
    others.push_back(std::async(std::launch::async, run, std::vector{2, 4}));
  }
  for (auto& other : others) {
    EXPECT_EQ(other.get(), whole);
  }
}

/// The norm and the loss with rows [0, ends[0]), [ends[0], ends[1]), ... in a call each.
std::vector<std::vector<float>> run_rows(const std::vector<int>& ends) {
  const auto x = random(row_count * width, 1), dy = random(row_count * width, 2),
             gain = random(width, 3), bias = random(width, 4);
  auto logits = random(row_count * vocabulary, 5);
  std::vector<float> y(x.size()), mean(row_count), reciprocal(row_count), dx(x.size()),
      dgain(width), dbias(width), highest(row_count), share(row_count);
  std::vector<double> loss(row_count);
  int first = 0;
  for (const int end : ends) {
    const layers::LayerNormShape shape{.rows = end - first, .width = width};
    const std::ptrdiff_t begin = std::ptrdiff_t{first} * width;
    layers::layer_norm_forward({.shape = shape, .gain = gain, .bias = bias}, x.data() + begin,
                               y.data() + begin, mean.data() + first, reciprocal.data() + first);
    const layers::LayerNormPass pass{.x = x.data() + begin,
                                     .mean = mean.data() + first,
                                     .reciprocal = reciprocal.data() + first,
                                     .dy = dy.data() + begin};
    layers::layer_norm_backward_input(shape, gain, pass, dx.data() + begin);
    layers::layer_norm_backward_weight(shape, pass, dgain, dbias);
    const std::vector<std::int32_t> targets(std::size_t(end - first), 7);
    const layers::CrossEntropy head{.vocabulary = vocabulary, .targets = targets};
    const layers::CrossEntropyRows kept{.highest = highest.data() + first,
                                        .share = share.data() + first,
                                        .loss = loss.data() + first};
    float* some = logits.data() + std::ptrdiff_t{first} * vocabulary;
    layers::cross_entropy_forward(head, some, kept);
    layers::cross_entropy_backward_input(head, kept, 0.3f, some);
    first = end;
  }
  return {y,     mean,    reciprocal, dx,     dgain,
          dbias, highest, share,      logits, {loss.begin(), loss.end()}};
}

TEST(LayerKernels, rows_may_be_split_into_calls_anywhere) {
  const auto whole = run_rows({row_count});
  EXPECT_EQ(run_rows({1, 2, 5, 5, 19, row_count}), whole);
}

}  // namespace
}  // namespace sprat::layers_test::rows
