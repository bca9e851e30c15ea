// A transformer's layers, by the rates that their own costs say: operations, and bytes if each
// operand were read once. Width 256, 8 sequences, with the matrix kernel that a job would choose
// here.
#include "sprat/layers.hpp"

#include <benchmark/benchmark.h>

#include <vector>

namespace {

using namespace sprat;

constexpr int width = 256, heads = 8, sequences = 8;

/// Small values: no exponential meets its ends, no product a subnormal.
std::vector<float> some(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i % 31) / 16.0f - 1.0f;
  }
  return values;
}

const GemmBackend& gemm() {
  static const auto backend = open_gemm_backend(choose_gemm_backend());
  return *backend;
}

void report(benchmark::State& state, const layers::Cost& cost) {
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["flops"] =
      benchmark::Counter(static_cast<double>(cost.flops) * rounds, benchmark::Counter::kIsRate);
  state.counters["bytes"] =
      benchmark::Counter(static_cast<double>(cost.bytes) * rounds, benchmark::Counter::kIsRate);
}

/// What attention reads and writes, forward and backward.
struct AttentionMemory {
  explicit AttentionMemory(int length)
      : shape{.sequences = sequences,
              .length = length,
              .heads = heads,
              .head_width = width / heads},
        qkv(some(static_cast<std::size_t>(3 * width) * sequences * length)),
        out(some(qkv.size() / 3)),
        dout(out),
        dqkv(qkv),
        kept(layers::attention_kept_count(shape)),
        workspace(layers::attention_backward_workspace(shape)) {}
  layers::AttentionInput input() const {
    return {qkv.data(), qkv.data() + width, qkv.data() + 2 * width, 3 * width};
  }
  layers::AttentionRows rows() { return {kept.data(), kept.data() + kept.size() / 2}; }
  void forward() {
    layers::attention_forward(gemm(), shape,
                              {.input = input(),
                               .out = out.data(),
                               .out_stride = width,
                               .rows = rows(),
                               .workspace = workspace});
  }
  void backward() {
    layers::attention_backward_input(gemm(), shape,
                                     {.input = input(),
                                      .out = out.data(),
                                      .dout = dout.data(),
                                      .out_stride = width,
                                      .rows = rows(),
                                      .dquery = dqkv.data(),
                                      .dkey = dqkv.data() + width,
                                      .dvalue = dqkv.data() + 2 * width,
                                      .workspace = workspace});
  }
  layers::AttentionShape shape;
  std::vector<float> qkv, out, dout, dqkv, kept, workspace;
};

void attention_forward(benchmark::State& state) {
  AttentionMemory memory(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    memory.forward();
  }
  report(state, layers::attention_forward_cost(memory.shape));
}
BENCHMARK(attention_forward)->Arg(128)->Arg(1024);

void attention_backward_input(benchmark::State& state) {
  AttentionMemory memory(static_cast<int>(state.range(0)));
  memory.forward();
  for (auto _ : state) {
    memory.backward();
  }
  report(state, layers::attention_backward_input_cost(memory.shape));
}
BENCHMARK(attention_backward_input)->Arg(128)->Arg(1024);

/// Argument: width of a row.
void layer_norm_forward(benchmark::State& state) {
  const layers::LayerNormShape shape{.rows = 1024, .width = static_cast<int>(state.range(0))};
  const auto columns = static_cast<std::size_t>(shape.width);
  const std::vector<float> x = some(1024 * columns), gain = some(columns);
  std::vector<float> y(x.size()), mean(1024), reciprocal(1024);
  for (auto _ : state) {
    layers::layer_norm_forward({.shape = shape, .gain = gain, .bias = gain}, x.data(), y.data(),
                               mean.data(), reciprocal.data());
  }
  report(state, layers::layer_norm_forward_cost(shape));
}
BENCHMARK(layer_norm_forward)->Arg(32)->Arg(256)->Arg(1024);

/// Argument: tokens of the vocabulary. The backward pass works in place, so one follows the other.
void cross_entropy(benchmark::State& state) {
  const auto vocabulary = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t rows = 128;
  std::vector<float> logits = some(rows * vocabulary), highest(rows), share(rows);
  std::vector<double> loss(rows);
  const std::vector<std::int32_t> targets(rows, 1);
  const layers::CrossEntropy layer{.vocabulary = static_cast<int>(vocabulary), .targets = targets};
  const layers::CrossEntropyRows kept{
      .highest = highest.data(), .share = share.data(), .loss = loss.data()};
  for (auto _ : state) {
    layers::cross_entropy_forward(layer, logits.data(), kept);
    layers::cross_entropy_backward_input(layer, kept, 1.0f, logits.data());
  }
  const auto forward = layers::cross_entropy_forward_cost(layer.vocabulary, rows);
  const auto backward = layers::cross_entropy_backward_input_cost(layer.vocabulary, rows);
  report(state, {.flops = forward.flops + backward.flops, .bytes = forward.bytes + backward.bytes});
}
BENCHMARK(cross_entropy)->Arg(256)->Arg(50'257);

}  // namespace
