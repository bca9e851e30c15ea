#include "bench/tensor/passes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace sprat::bench {
namespace {

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(generator() >> 8) * 0x1p-24f;
  }
  return values;
}

std::size_t elements_of(int rows, int width) { return std::size_t(rows) * std::size_t(width); }

}  // namespace

Mlp::Mlp(Communicator& by_pieces, Communicator& in_one, const tensor::Parallelism& how, int rows,
         int width, const GemmBackend& gemm)
    : pieces_(by_pieces, how),
      one_(in_one, {.degree = how.degree,
                    .sequence_parallel = how.sequence_parallel,
                    .chunk_bytes = std::numeric_limits<std::size_t>::max()}),
      rows_(rows),
      own_rows_(pieces_.own_rows(rows).count),
      width_(width),
      inner_(pieces_.own_part(4 * width).count),
      gemm_(gemm) {
  const auto rank = static_cast<unsigned>(pieces_.rank());
  x_ = numbers(elements_of(own_rows_, width), 100 + rank);
  hidden_ = numbers(elements_of(rows, inner_), 200 + rank);
  up_weight_ = numbers(elements_of(width, inner_), 300 + rank);
  up_bias_ = numbers(std::size_t(inner_), 400 + rank);
  down_weight_ = numbers(elements_of(width, inner_), 500 + rank);
  down_bias_ = numbers(std::size_t(width), 600);
  whole_.resize(elements_of(rows, width));
  for (const tensor::Group* group : {&pieces_, &one_}) {
    (group == &pieces_ ? workspace_ : one_workspace_)
        .resize(std::max(tensor::column_workspace(group->how(), up().shape),
                         tensor::row_workspace(group->how(), down().shape)));
  }
  for (int part = 0; part < how.degree; ++part) {
    counts_.push_back(elements_of(tensor::part_of(rows, how.degree, part).count, width));
  }
  for (Outputs* to : {&layers_, &parts_}) {
    to->hidden.resize(hidden_.size());
    to->own.resize(x_.size());
    to->weight.resize(up_weight_.size());
    to->bias.resize(std::size_t(std::max(inner_, width)));
  }
}

layers::Linear Mlp::up() const {
  return {.gemm = gemm_,
          .shape = {.rows = rows_,
                    .inputs = width_,
                    .outputs = inner_,
                    .output_parts = pieces_.how().degree},
          .weight = up_weight_,
          .bias = up_bias_};
}
layers::Linear Mlp::down() const {
  return {.gemm = gemm_,
          .shape = {.rows = rows_,
                    .inputs = inner_,
                    .outputs = width_,
                    .input_parts = pieces_.how().degree},
          .weight = down_weight_,
          .bias = down_bias_};
}

std::function<void()> Mlp::gather_whole() {
  return [this] { one_.gather(x_.data(), whole_, counts_).wait(); };
}
std::function<void()> Mlp::scatter_whole() {
  return [this] {
    if (one_.how().sequence_parallel) {
      one_.scatter_sum(whole_, parts_.own.data(), counts_).wait();
      return;
    }
    one_.sum(whole_).wait();
    std::ranges::copy(whole_, parts_.own.begin());
  };
}

std::vector<Pass> Mlp::passes() {
  if (!pieces_.how().sequence_parallel) {
    return {row_forward(), column_backward()};
  }
  return {column_forward(), row_forward(), column_backward(), row_backward()};
}

Pass Mlp::column_forward() {
  const auto layer = [this](tensor::Group& group, std::span<float> workspace) {
    tensor::column_forward(
        group, {.layer = up(), .x = x_.data(), .y = layers_.hidden.data(), .workspace = workspace});
  };
  return {.name = "column forward: gather",
          .layer = [=, this] { layer(pieces_, workspace_); },
          .one_piece = [=, this] { layer(one_, one_workspace_); },
          .parts = {{.travels = true, .run = gather_whole()},
                    {.run =
                         [this] {
                           layers::linear_forward(up(), whole_.data(), parts_.hidden.data());
                         }}},
          .results = {{"outputs", layers_.hidden, parts_.hidden, width_ + 1}}};
}

Pass Mlp::row_forward() {
  const auto layer = [this](tensor::Group& group, std::span<float> workspace) {
    tensor::row_forward(group, {.layer = down(),
                                .residual = x_.data(),
                                .x = hidden_.data(),
                                .y = layers_.own.data(),
                                .workspace = workspace});
  };
  const auto multiply = [this] {
    layers::Linear without_bias = down();
    without_bias.bias = {};
    layers::linear_forward(without_bias, hidden_.data(), whole_.data());
  };
  const auto add_bias = [this] {
    layers::bias_forward_onto({.rows = own_rows_, .width = width_}, down_bias_, x_.data(),
                              parts_.own.data());
  };
  const char* what = one_.how().sequence_parallel ? "reduce-scatter" : "all-reduce";
  return {
      .name = fmt::format("row forward: {}", what),
      .layer = [=, this] { layer(pieces_, workspace_); },
      .one_piece = [=, this] { layer(one_, one_workspace_); },
      .parts = {{.run = multiply}, {.travels = true, .run = scatter_whole()}, {.run = add_bias}},
      .results = {{"outputs", layers_.own, parts_.own, 4 * width_ + 3}}};
}

tensor::LinearBackward Mlp::backward(const layers::Linear& layer, const float* x, const float* dy,
                                     float* dx, Outputs& to) {
  return {.layer = layer,
          .x = x,
          .dy = dy,
          .dx = dx,
          .weight = to.weight,
          .bias = std::span(to.bias).first(layer.bias.size())};
}

Pass Mlp::column_backward() {
  const auto layer = [this](tensor::Group& group, std::span<float> workspace) {
    const layers::Linear up_layer = up();
    auto pass = backward(up_layer, x_.data(), hidden_.data(), layers_.own.data(), layers_);
    pass.workspace = workspace;
    tensor::column_backward(group, pass);
  };
  const auto input = [this] { layers::linear_backward_input(up(), hidden_.data(), whole_.data()); };
  const auto weight = [this] {
    const float* const x = one_.how().sequence_parallel ? whole_.data() : x_.data();
    const auto to = backward(up(), x, hidden_.data(), nullptr, parts_);
    layers::linear_backward_weight(gemm_, up().shape,
                                   {.x = x, .dy = to.dy, .weight = to.weight, .bias = to.bias});
  };
  std::vector<Part> parts = {{.run = input}, {.travels = true, .run = scatter_whole()}};
  if (one_.how().sequence_parallel) {
    parts.push_back({.travels = true, .run = gather_whole()});
  }
  parts.push_back({.run = weight});
  return {.name = one_.how().sequence_parallel ? "column backward: gather, reduce-scatter"
                                               : "column backward: all-reduce",
          .layer = [=, this] { layer(pieces_, workspace_); },
          .one_piece = [=, this] { layer(one_, one_workspace_); },
          .parts = std::move(parts),
          .results = {{"input's gradient", layers_.own, parts_.own, 4 * width_ + 1},
                      {"weight's gradient", layers_.weight, parts_.weight, rows_ + 1}}};
}

Pass Mlp::row_backward() {
  const auto layer = [this](tensor::Group& group, std::span<float> workspace) {
    const layers::Linear down_layer = down();
    auto pass = backward(down_layer, hidden_.data(), x_.data(), layers_.hidden.data(), layers_);
    pass.workspace = workspace;
    tensor::row_backward(group, pass);
  };
  const auto both = [this] {
    layers::linear_backward_input(down(), whole_.data(), parts_.hidden.data());
    const auto to = backward(down(), hidden_.data(), whole_.data(), nullptr, parts_);
    layers::linear_backward_weight(gemm_, down().shape,
                                   {.x = to.x, .dy = to.dy, .weight = to.weight, .bias = to.bias});
  };
  return {.name = "row backward: gather",
          .layer = [=, this] { layer(pieces_, workspace_); },
          .one_piece = [=, this] { layer(one_, one_workspace_); },
          .parts = {{.travels = true, .run = gather_whole()}, {.run = both}},
          .results = {{"input's gradient", layers_.hidden, parts_.hidden, width_ + 1},
                      {"weight's gradient", layers_.weight, parts_.weight, rows_ + 1}}};
}

std::string Mlp::difference(std::vector<Pass>& passes) {
  for (Pass& pass : passes) {
    for (const std::function<void()>* layer : {&pass.layer, &pass.one_piece}) {
      for (Outputs* to : {&layers_, &parts_}) {
        std::ranges::fill(to->weight, 0.0f);
        std::ranges::fill(to->bias, 0.0f);
      }
      (*layer)();
      for (const Part& part : pass.parts) {
        part.run();
      }
      for (const Result& result : pass.results) {
        // Of numbers that are not negative both ways err by gamma(n) of the result at most.
        const double gamma = result.roundings * 0x1p-24 / (1 - result.roundings * 0x1p-24);
        const double bound = 2 * gamma / (1 - gamma);
        for (std::size_t i = 0; i < result.parts.size(); ++i) {
          const double is = result.layers[i], other = result.parts[i];
          if (!(std::abs(is - other) <= bound * other)) {
            return fmt::format("{}, {}, element {}: {} and, one after the other, {}", pass.name,
                               result.name, i, is, other);
          }
        }
      }
    }
  }
  return {};
}

double Mlp::exchanged_bytes() const {
  const tensor::Traffic once{.all_reduced = 0, .gathered = 4 * whole_.size(), .scattered = 0};
  return once.sent(one_.how().degree);
}

}  // namespace sprat::bench
