// Embedding and loss of which each rank has a part of the vocabulary.
#include <algorithm>
#include <cstddef>

#include "comm/base/check.hpp"
#include "mp/tensor/row_exchange.hpp"

namespace sprat::tensor {
namespace {

using layers::CrossEntropy;
using layers::EmbeddingShape;

EmbeddingShape own_part(const Group& group, EmbeddingShape shape) {
  shape.part = own_tokens(group, shape.vocabulary);
  return shape;
}

/// The pieces of a sum are shared among the ranks; a backend that cuts no sums has one a rank.
CrossEntropy own_part(const Group& group, CrossEntropy layer) {
  layer.part = own_tokens(group, layer.vocabulary);
  layer.pieces = std::max(layer.pieces / group.how().degree, 1);
  return layer;
}

/// An embedding is like a row-parallel layer: slots, then all rows where those are gathered.
layers::LinearShape as_rows(const EmbeddingShape& shape, std::size_t rows) {
  return {.rows = static_cast<int>(rows), .outputs = shape.width};
}

void check_workspace(const char* layer, std::span<float> given, std::size_t wanted) {
  require(given.size() >= wanted, layer, "() has a workspace of ", given.size(),
          " elements and needs ", wanted,
          "; embedding_workspace() and cross_entropy_workspace() say how many");
}

}  // namespace

layers::TokenRange own_tokens(const Group& group, int vocabulary) {
  const Part part = group.own_part(vocabulary);
  return {.first = part.first, .count = part.count};
}

std::size_t embedding_workspace(const Parallelism& how, const EmbeddingShape& shape,
                                std::size_t rows) {
  return row_workspace(how, as_rows(shape, rows));
}

// One rank has a token's row and the others zeros, so the sum is that row; of its zeros it loses
// the sign.
void embedding_forward(Group& group, const EmbeddingPass& pass, float* x) {
  const EmbeddingShape shape = own_part(group, pass.shape);
  if (group.how().degree == 1) {
    layers::embedding_forward(shape, pass.tokens, pass.table, x);
    return;
  }
  const int rows = static_cast<int>(pass.tokens.size()), width = shape.width;
  check_workspace("embedding_forward", pass.workspace, slots_count(group.how(), rows, width));
  const RowPlan plan = plan_rows(group.how(), rows, width);
  sum_rows(
      {.group = group, .plan = plan, .width = width, .slots = pass.workspace},
      [&](Part some, float* to) {
        layers::embedding_forward(
            shape, pass.tokens.subspan(std::size_t(some.first), std::size_t(some.count)),
            pass.table, to);
      },
      [&](Part own, float* sums) {
        std::copy_n(sums, row_elements(own.count, width), x + row_offset(own.first, width));
      });
}

void embedding_backward_weight(Group& group, const EmbeddingPass& pass, const float* dx,
                               std::span<float> table) {
  const EmbeddingShape shape = own_part(group, pass.shape);
  const int rows = static_cast<int>(pass.tokens.size());
  const RowPlan plan = plan_rows(group.how(), rows, shape.width);
  if (plan.dealt) {
    check_workspace("embedding_backward_weight", pass.workspace, row_elements(rows, shape.width));
    start_gather({.group = group, .plan = plan, .width = shape.width, .slots = {}}, dx,
                 pass.workspace.data())
        .wait();
    dx = pass.workspace.data();
  }
  layers::embedding_backward_weight(shape, pass.tokens, dx, table);
}

std::size_t cross_entropy_workspace(const Parallelism& how, std::size_t rows) {
  return how.degree == 1 ? 0 : 2 * rows;
}

void cross_entropy_forward(Group& group, const CrossEntropyForward& pass) {
  const CrossEntropy layer = own_part(group, pass.layer);
  const std::size_t rows = layer.targets.size();
  if (group.how().degree == 1) {
    layers::cross_entropy_forward(layer, pass.logits, pass.rows);
    return;
  }
  const std::size_t wanted = cross_entropy_workspace(group.how(), rows);
  check_workspace("cross_entropy_forward", pass.workspace, wanted);
  // Exponentials need the highest of all parts first; all else is one sum.
  layers::cross_entropy_highest(layer, pass.logits, pass.rows.highest);
  group.highest({pass.rows.highest, rows}).wait();
  const std::span<float> sums = pass.workspace.first(wanted);
  layers::cross_entropy_sums(layer, pass.logits, pass.rows.highest, sums.data());
  group.sum(sums).wait();
  layers::cross_entropy_finish(sums, pass.rows);
}

void cross_entropy_backward_input(const Group& group, const CrossEntropy& layer,
                                  const layers::CrossEntropyRows& rows, float scale,
                                  float* logits) {
  layers::cross_entropy_backward_input(own_part(group, layer), rows, scale, logits);
}

}  // namespace sprat::tensor
