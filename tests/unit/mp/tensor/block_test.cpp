// A whole transformer that is cut among ranks: embedding, a block, head and loss, forward and every
// gradient, against one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/mp/tensor/cut_values.hpp"

namespace sprat::tensor_test::block {
namespace {

using layers::AttentionShape;
using layers::Linear;
using tensor::Group;
using tensor::Parallelism;
using tensor::Part;

std::vector<std::int32_t> some_tokens(int factor) {
  std::vector<std::int32_t> tokens;
  for (int row = 0; row < rows; ++row) {
    tokens.push_back(row * row * factor % vocabulary);
  }
  return tokens;
}

/// One norm's input, what it keeps, and where its parameters are.
struct NormPlace {
  std::string gain, bias;
  const std::vector<float>& x;
  std::vector<float> mean = {}, reciprocal = {};
};

/// Both halves of a layer's backward, at once or one after the other.
enum class Halves { together, apart };

/// What one rank computes.
class RankModel {
 public:
  RankModel(Group& group, const GemmBackend& gemm, const Values& whole, Halves halves)
      : group_(group),
        gemm_(gemm),
        halves_(halves),
        own_(group.own_rows(rows)),
        heads_here_(group.own_part(heads).count),
        width_here_(heads_here_ * head_width),
        hidden_here_(group.own_part(hidden).count),
        tokens_here_(group.own_part(vocabulary).count),
        workspace_(most_workspace()) {
    for (const auto& [name, values] : whole) {
      parameters_[name] = taken(values, cut_of(group, name));
      gradients_[name].resize(parameters_[name].size());
    }
  }

  void forward() {
    tensor::embedding_forward(group_, embedding(), x_.data());
    layers::position_forward(position(), parameters_.at("positions"), x_.data());
    norm_forward(first_, normed_);
    column_forward("qkv", normed_, qkv_);
    attention_forward();
    row_forward("projection", x_, attended_, middle_);
    norm_forward(second_, second_normed_);
    column_forward("up", second_normed_, up_);
    gated_.resize(up_.size());
    layers::gelu_forward(up_, gated_.data());
    row_forward("down", middle_, gated_, y_);
    norm_forward(last_, last_normed_);
    column_forward("table", last_normed_, logits_);
    kept_logits_ = logits_;
    tensor::cross_entropy_forward(
        group_,
        {.layer = loss(), .logits = logits_.data(), .rows = loss_rows(), .workspace = workspace_});
  }

  void backward() {
    std::vector<float> dx(own_floats(width)), dnormed(dx.size()), dgated(up_.size()),
        dattended(attended_.size()), dqkv(qkv_.size());
    tensor::cross_entropy_backward_input(group_, loss(), loss_rows(), 1.0f / rows, logits_.data());
    tensor::PartialGradients partial(group_, partial_workspace_);
    column_backward("table", last_normed_, logits_, dnormed);
    norm_backward(last_, dnormed, dx, partial);
    row_backward("down", gated_, dx, dgated);
    layers::gelu_backward_input(up_, dgated.data());
    column_backward("up", second_normed_, dgated, dnormed);
    norm_backward(second_, dnormed, dx, partial);
    row_backward("projection", attended_, dx, dattended);
    attention_backward(dattended, dqkv);
    column_backward("qkv", normed_, dqkv, dnormed);
    norm_backward(first_, dnormed, dx, partial);
    position_backward(dx, partial);
    partial.start();
    tensor::embedding_backward_weight(group_, embedding(), dx.data(), gradients_.at("table"));
    partial.finish();
    dx_ = dx;
  }

  void tell(Record& record) const {
    for (const auto& [name, gradient] : gradients_) {
      const Cut cut = cut_of(group_, name);
      record.put("gradient of " + name, whole_count(name), cut, gradient);
    }
    const Cut own{.columns = width, .rows = {own_}, .some = {0, width}};
    record.put("x", rows * width, own, x_);
    record.put("middle", rows * width, own, middle_);
    record.put("y", rows * width, own, y_);
    record.put("gradient of x", rows * width, own, dx_);
    const Part tokens = group_.own_part(vocabulary);
    record.put("logits", rows * vocabulary,
               {.columns = vocabulary, .rows = {{0, rows}}, .some = tokens}, kept_logits_);
    const std::vector<float> losses(losses_.begin(), losses_.end());
    record.put("loss", rows, {.rows = {{0, rows}}}, losses);
  }

 private:
  std::size_t own_floats(int columns) const {
    return std::size_t(own_.count) * std::size_t(columns);
  }
  static std::size_t all_floats(int columns) { return std::size_t(rows) * std::size_t(columns); }
  std::size_t most_workspace() const {
    const Parallelism& how = group_.how();
    return std::max({tensor::column_workspace(how, {.rows = rows, .inputs = width}),
                     tensor::row_workspace(how, {.rows = rows, .outputs = width}),
                     tensor::cross_entropy_workspace(how, rows)});
  }
  static std::size_t whole_count(const std::string& name) {
    static const Values whole = whole_parameters();
    return whole.at(name).size();
  }

  tensor::EmbeddingPass embedding() {
    return {.shape = {.vocabulary = vocabulary, .width = width},
            .tokens = tokens_,
            .table = parameters_.at("table"),
            .workspace = workspace_};
  }
  layers::CrossEntropy loss() const {
    return {.vocabulary = vocabulary, .targets = targets_, .pieces = gemm_.sum_pieces()};
  }
  layers::CrossEntropyRows loss_rows() {
    return {.highest = highest_.data(), .share = share_.data(), .loss = losses_.data()};
  }

  /// The layer as this rank has it. A table has no bias.
  Linear linear(const std::string& name) {
    const bool is_row = name == "projection" || name == "down";
    const int inputs = name == "projection" ? width_here_ : name == "down" ? hidden_here_ : width;
    const std::vector<float>& weight = parameters_.at(name);
    const auto bias = parameters_.find(name + "_bias");
    return {.gemm = gemm_,
            .shape = {.rows = rows,
                      .inputs = inputs,
                      .outputs = static_cast<int>(weight.size()) / inputs,
                      .output_groups = !is_row && name == "qkv" ? 3 : 1},
            .weight = weight,
            .bias = bias == parameters_.end() ? std::span<const float>() : bias->second};
  }
  void column_forward(const std::string& name, const std::vector<float>& x, std::vector<float>& y) {
    const Linear layer = linear(name);
    y.resize(all_floats(layer.shape.outputs));
    tensor::column_forward(group_,
                           {.layer = layer, .x = x.data(), .y = y.data(), .workspace = workspace_});
  }
  void row_forward(const std::string& name, const std::vector<float>& residual,
                   const std::vector<float>& x, std::vector<float>& y) {
    // The residual stream may be written where it stands.
    y = residual;
    tensor::row_forward(group_, {.layer = linear(name),
                                 .residual = y.data(),
                                 .x = x.data(),
                                 .y = y.data(),
                                 .workspace = workspace_});
  }
  std::span<float> gradient(const std::string& name) {
    const auto found = gradients_.find(name);
    return found == gradients_.end() ? std::span<float>() : std::span<float>(found->second);
  }
  void column_backward(const std::string& name, const std::vector<float>& x,
                       const std::vector<float>& dy, std::vector<float>& dx) {
    const Linear layer = linear(name);
    const tensor::LinearBackward pass{.layer = layer,
                                      .x = x.data(),
                                      .dy = dy.data(),
                                      .dx = dx.data(),
                                      .weight = gradient(name),
                                      .bias = gradient(name + "_bias"),
                                      .workspace = workspace_};
    if (halves_ == Halves::together) {
      tensor::column_backward(group_, pass);
      return;
    }
    tensor::column_backward_input(group_, pass).wait();
    tensor::column_backward_weight(group_, pass);
  }
  void row_backward(const std::string& name, const std::vector<float>& x,
                    const std::vector<float>& dy, std::vector<float>& dx) {
    const Linear layer = linear(name);
    const tensor::LinearBackward pass{.layer = layer,
                                      .x = x.data(),
                                      .dy = dy.data(),
                                      .dx = dx.data(),
                                      .weight = gradient(name),
                                      .bias = gradient(name + "_bias"),
                                      .workspace = workspace_};
    if (halves_ == Halves::together) {
      tensor::row_backward(group_, pass);
      return;
    }
    tensor::row_backward_input(group_, pass);
    tensor::row_backward_weight(group_, pass);
  }

  int row_pieces() const { return group_.own_row_pieces(gemm_.sum_pieces()); }
  layers::LayerNormShape norm_shape() const {
    return {.rows = own_.count, .width = width, .row_pieces = row_pieces()};
  }
  void norm_forward(NormPlace& norm, std::vector<float>& y) {
    y.resize(own_floats(width));
    norm.mean.resize(own_floats(1));
    norm.reciprocal.resize(own_floats(1));
    layers::layer_norm_forward({.shape = norm_shape(),
                                .gain = parameters_.at(norm.gain),
                                .bias = parameters_.at(norm.bias)},
                               norm.x.data(), y.data(), norm.mean.data(), norm.reciprocal.data());
  }
  void norm_backward(const NormPlace& norm, const std::vector<float>& dy, std::vector<float>& dx,
                     tensor::PartialGradients& partial) {
    const layers::LayerNormPass pass{.x = norm.x.data(),
                                     .mean = norm.mean.data(),
                                     .reciprocal = norm.reciprocal.data(),
                                     .dy = dy.data()};
    layers::layer_norm_backward_input(norm_shape(), parameters_.at(norm.gain), pass, dx.data());
    std::vector<float> workspace(layers::layer_norm_backward_workspace(norm_shape()));
    layers::layer_norm_backward_weight(norm_shape(), pass, partial.of(gradients_.at(norm.gain)),
                                       partial.of(gradients_.at(norm.bias)), workspace);
  }
  layers::PositionShape position() const {
    return {.rows = own_.count,
            .length = length,
            .width = width,
            .first_row = own_.first,
            .row_pieces = row_pieces()};
  }
  void position_backward(const std::vector<float>& dx, tensor::PartialGradients& partial) {
    std::vector<float> workspace(layers::position_backward_workspace(position()));
    layers::position_backward_weight(position(), dx.data(), partial.of(gradients_.at("positions")),
                                     workspace);
  }

  AttentionShape attention_shape() const {
    return {
        .sequences = sequences, .length = length, .heads = heads_here_, .head_width = head_width};
  }
  layers::AttentionInput attention_input() const {
    return {.query = qkv_.data(),
            .key = qkv_.data() + width_here_,
            .value = qkv_.data() + 2 * width_here_,
            .stride = 3 * width_here_};
  }
  layers::AttentionRows attention_rows() {
    return {.highest = attention_highest_.data(), .share = attention_share_.data()};
  }
  void attention_forward() {
    attended_.resize(all_floats(width_here_));
    attention_highest_.resize(all_floats(heads_here_));
    attention_share_.resize(all_floats(heads_here_));
    std::vector<float> workspace(layers::attention_forward_workspace(attention_shape()));
    layers::attention_forward(gemm_, attention_shape(),
                              {.input = attention_input(),
                               .out = attended_.data(),
                               .out_stride = width_here_,
                               .rows = attention_rows(),
                               .workspace = workspace});
  }
  void attention_backward(const std::vector<float>& dattended, std::vector<float>& dqkv) {
    std::vector<float> workspace(layers::attention_backward_workspace(attention_shape()));
    layers::attention_backward_input(gemm_, attention_shape(),
                                     {.input = attention_input(),
                                      .out = attended_.data(),
                                      .dout = dattended.data(),
                                      .out_stride = width_here_,
                                      .rows = attention_rows(),
                                      .dquery = dqkv.data(),
                                      .dkey = dqkv.data() + width_here_,
                                      .dvalue = dqkv.data() + 2 * width_here_,
                                      .workspace = workspace});
  }

  Group& group_;
  const GemmBackend& gemm_;
  Halves halves_;
  Part own_;
  int heads_here_, width_here_, hidden_here_, tokens_here_;
  Values parameters_, gradients_;
  const std::vector<std::int32_t> tokens_ = some_tokens(7), targets_ = some_tokens(5);
  std::vector<float> x_ = std::vector<float>(own_floats(width)), middle_, y_, dx_, normed_,
                     second_normed_, last_normed_, qkv_, attended_, attention_highest_,
                     attention_share_, up_, gated_, logits_, kept_logits_;
  std::vector<float> highest_ = std::vector<float>(rows), share_ = highest_;
  std::vector<double> losses_ = std::vector<double>(rows);
  NormPlace first_{.gain = "gain", .bias = "bias", .x = x_},
      second_{.gain = "second_gain", .bias = "second_bias", .x = middle_},
      last_{.gain = "last_gain", .bias = "last_bias", .x = y_};
  std::vector<float> workspace_,
      partial_workspace_ = std::vector<float>(6 * width + std::size_t{length} * width);
};

struct RunCase {
  Parallelism how = {};
  Halves halves = Halves::together;
  friend void PrintTo(const RunCase& one, std::ostream* out) {
    *out << one.how.degree << (one.how.sequence_parallel ? " sequence parallel" : "")
         << " chunks of " << one.how.chunk_bytes
         << (one.halves == Halves::apart ? " in halves" : "");
  }
};

struct RunResult {
  Values values;
  std::vector<tensor::Traffic> traffic;  // by rank
};
/// `hosts`: of the ranks, by name; empty: one.
RunResult run(const RunCase& one, const GemmBackend& gemm, const char* hosts = "") {
  Record record;
  std::vector<tensor::Traffic> traffic(std::size_t(one.how.degree));
  const Values whole = whole_parameters();
  Config config;
  config.host = hosts;
  run_virtual_ranks(one.how.degree, config, [&](Communicator& world) {
    Group group(world, one.how);
    RankModel model(group, gemm, whole, one.halves);
    model.forward();
    model.backward();
    model.tell(record);
    traffic[std::size_t(world.rank())] = group.traffic();
  });
  return {record.values(), traffic};
}

std::vector<RunCase> cut_cases(const std::vector<int>& degrees) {
  std::vector<RunCase> cases;
  for (const int degree : degrees) {
    for (const bool dealt : {false, true}) {
      // One chunk, and as many as the rows allow.
      for (const std::size_t chunk_bytes : {std::size_t{1} << 20, std::size_t{1}}) {
        for (const Halves halves : {Halves::together, Halves::apart}) {
          cases.push_back({{degree, dealt, chunk_bytes, /*chunk_rows=*/32}, halves});
        }
      }
    }
  }
  return cases;
}

class TensorParallel : public testing::TestWithParam<RunCase> {};

TEST_P(TensorParallel, has_the_bits_of_one_rank_with_the_reference_product) {
  const auto gemm = open_gemm_backend("reference");
  static const Values one = run({}, *gemm).values;
  const Values cut = run(GetParam(), *gemm).values;
  ASSERT_EQ(cut.size(), one.size());
  for (const auto& [name, values] : one) {
    EXPECT_EQ(cut.at(name), values) << name;
  }
}

TEST(TensorHosts, have_the_bits_of_one) {
  const auto gemm = open_gemm_backend("reference");
  const Values one = run({}, *gemm).values;
  for (const bool dealt : {false, true}) {
    const RunCase cut{
        .how = {.degree = 4, .sequence_parallel = dealt, .chunk_bytes = 1, .chunk_rows = 32}};
    const Values apart = run(cut, *gemm, "a,a,b,b").values;
    for (const auto& [name, values] : one) {
      EXPECT_EQ(apart.at(name), values) << name;
    }
  }
}

double norm_of(const std::vector<float>& a, const std::vector<float>& less = {}) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double value = double{a[i]} - (less.empty() ? 0.0 : double{less[i]});
    squares += value * value;
  }
  return std::sqrt(squares);
}

TEST_P(TensorParallel, differs_by_roundings_from_one_rank_with_another_product) {
  const auto gemm = open_gemm_backend(choose_gemm_backend());
  static const Values one = run({}, *gemm).values;
  const Values cut = run(GetParam(), *gemm).values;
  // On the longest way: each product forward and backward, and the sum over rows of a gradient.
  constexpr int attention = head_width + 2 * length, products = 4 * width + hidden + vocabulary;
  const double bound = 2 * layers_test::gamma(2 * (products + attention) + rows);
  for (const auto& [name, values] : one) {
    EXPECT_LE(norm_of(cut.at(name), values), bound * norm_of(values)) << name;
  }
}

/// Of the model above, by the layers' formulas.
tensor::Traffic expected_traffic(const RunCase& one) {
  const Parallelism& how = one.how;
  tensor::Traffic sum = tensor::cross_entropy_traffic(how, rows);
  for (int column = 0; column < 3; ++column) {  // query, key and value; up; head
    sum += tensor::column_forward_traffic(how, rows, width);
    sum += tensor::column_backward_traffic(how, rows, width);
  }
  for (int row = 0; row < 3; ++row) {  // embedding, projection, down
    sum += tensor::row_forward_traffic(how, rows, width);
    sum += tensor::row_backward_traffic(how, rows, width);
    // In halves the gradient of the output is gathered for each; an embedding has one half.
    if (one.halves == Halves::apart && row > 0) {
      sum += tensor::row_backward_traffic(how, rows, width);
    }
  }
  if (how.sequence_parallel && how.degree > 1) {
    sum.all_reduced += sizeof(float) * (6 * width + length * width);
  }
  return sum;
}

TEST_P(TensorParallel, sends_what_the_formulas_say) {
  const auto gemm = open_gemm_backend("reference");
  for (const tensor::Traffic& traffic : run(GetParam(), *gemm).traffic) {
    EXPECT_EQ(traffic, expected_traffic(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, TensorParallel, testing::ValuesIn(cut_cases({1, 2, 4})));

// Megatron's count (Korthikanti et al. 2022, section 4.2.2) for a block of n rows of width w: two
// all-reduces forward and two backward; or as many gathers and reduce-scatters, and two gathers
// more.
TEST(TensorTraffic,
     of_a_block_is_that_of_four_all_reduces_and_half_as_much_again_if_rows_are_dealt) {
  constexpr int n = 1024, w = 768;
  constexpr double all_reduce = 2.0 * 4 * n * w * 3 / 4;
  for (const bool dealt : {false, true}) {
    const Parallelism how{.degree = 4, .sequence_parallel = dealt};
    tensor::Traffic block;
    for (int region = 0; region < 2; ++region) {
      block += tensor::column_forward_traffic(how, n, w);
      block += tensor::row_forward_traffic(how, n, w);
      block += tensor::column_backward_traffic(how, n, w);
      block += tensor::row_backward_traffic(how, n, w);
    }
    EXPECT_EQ(block.sent(4), 4 * all_reduce + (dealt ? 2 * all_reduce / 2 : 0));
  }
}

}  // namespace
}  // namespace sprat::tensor_test::block
