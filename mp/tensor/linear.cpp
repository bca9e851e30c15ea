// Column-parallel and row-parallel linear layers: which rows are multiplied when, and what travels
// meanwhile. A product of some rows has the bits that those rows have in the product of all, with
// the backend "reference".
#include <algorithm>
#include <cstddef>
#include <utility>

#include "comm/base/check.hpp"
#include "mp/tensor/row_exchange.hpp"

namespace sprat::tensor {
namespace {

using layers::Linear;
using layers::LinearShape;

/// As one of the group's parts.
Linear column_part(const Group& group, Linear layer) {
  layer.shape.output_parts = group.how().degree;
  return layer;
}
Linear row_part(const Group& group, Linear layer) {
  layer.shape.input_parts = group.how().degree;
  return layer;
}
Linear with_rows(Linear layer, int rows) {
  layer.shape.rows = rows;
  return layer;
}

/// A workspace is slots of chunks, then all rows, where those are gathered.
std::size_t whole_count(const Parallelism& how, int rows, int width) {
  return rows_are_dealt(how) ? row_elements(rows, width) : 0;
}

/// Rows of this width between ranks, with the workspace that they take.
struct Region {
  Region(Group& group, int rows, int width, std::span<float> workspace)
      : plan(plan_rows(group.how(), rows, width)),
        exchange{.group = group, .plan = plan, .width = width, .slots = workspace} {
    const std::size_t slots = slots_count(group.how(), rows, width);
    const std::size_t wanted = slots + whole_count(group.how(), rows, width);
    require(workspace.size() >= wanted, "a tensor parallel layer has a workspace of ",
            workspace.size(), " elements and needs ", wanted,
            "; column_workspace() and row_workspace() say how many");
    exchange.slots = workspace.first(slots);
    whole = workspace.data() + slots;
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  RowPlan plan;
  RowExchange exchange;
  float* whole = nullptr;  // all rows, where they are dealt to ranks
};

Region column_region(Group& group, const LinearShape& shape, std::span<float> workspace) {
  return {group, shape.rows, shape.inputs, workspace};
}
Region row_region(Group& group, const LinearShape& shape, std::span<float> workspace) {
  return {group, shape.rows, shape.outputs, workspace};
}

/// y = residual + bias + sums, in the order that a product added onto the others has it in.
void finish_rows(const layers::BiasShape& shape, std::span<const float> bias, const float* residual,
                 float* sums, float* y) {
  const std::size_t count = row_elements(shape.rows, shape.width);
  if (bias.empty()) {
    layers::residual_forward({residual, count}, sums, y);
    return;
  }
  layers::bias_forward_onto(shape, bias, residual, sums);
  std::copy_n(sums, count, y);
}

/// Adds to the gradients of weight and bias: x and dy of all rows.
void add_weight(const LinearBackward& pass, const float* x, const float* dy) {
  layers::linear_backward_weight(pass.layer.gemm, pass.layer.shape,
                                 {.x = x, .dy = dy, .weight = pass.weight, .bias = pass.bias});
}

Work start_input_gradient(const Region& region, const LinearBackward& pass) {
  const Linear part = column_part(region.exchange.group, pass.layer);
  return start_sums(
      region.exchange,
      [&](Part rows, float* to) {
        layers::linear_backward_input(with_rows(part, rows.count),
                                      pass.dy + row_offset(rows.first, part.shape.outputs), to);
      },
      pass.dx);
}

/// The gradient of a row-parallel layer's input, by rows as they come; all rows of dy.
const float* gathered_input_gradient(const Region& region, const LinearBackward& pass) {
  const Linear part = row_part(region.exchange.group, pass.layer);
  const LinearShape& shape = part.shape;
  const float* const dy = region.plan.dealt ? region.whole : pass.dy;
  gather_rows(region.exchange, pass.dy, region.whole, [&](Part rows) {
    layers::linear_backward_input(with_rows(part, rows.count),
                                  dy + row_offset(rows.first, shape.outputs),
                                  pass.dx + row_offset(rows.first, shape.inputs));
  });
  return dy;
}

/// All rows of what this rank has its own of.
struct AllRows {
  const float* rows;
  Work work;
};
AllRows start_all_rows(const Region& region, const float* own) {
  if (!region.plan.dealt) {
    return {own, {}};
  }
  return {region.whole, start_gather(region.exchange, own, region.whole)};
}

}  // namespace

std::size_t column_workspace(const Parallelism& how, const LinearShape& shape) {
  return most_slots_count(how, shape.rows, shape.inputs) +
         whole_count(how, shape.rows, shape.inputs);
}
std::size_t row_workspace(const Parallelism& how, const LinearShape& shape) {
  return most_slots_count(how, shape.rows, shape.outputs) +
         whole_count(how, shape.rows, shape.outputs);
}

void column_forward(Group& group, const ColumnForward& pass) {
  const Linear part = column_part(group, pass.layer);
  const LinearShape& shape = part.shape;
  const Region region = column_region(group, shape, pass.workspace);
  const float* const x = region.plan.dealt ? region.whole : pass.x;
  gather_rows(region.exchange, pass.x, region.whole, [&](Part rows) {
    layers::linear_forward(with_rows(part, rows.count), x + row_offset(rows.first, shape.inputs),
                           pass.y + row_offset(rows.first, shape.outputs));
  });
}

void row_forward(Group& group, const RowForward& pass) {
  Linear part = row_part(group, pass.layer);
  if (group.how().degree == 1) {
    layers::linear_forward_onto(part, pass.residual, pass.x, pass.y);
    return;
  }
  // Each rank would add the bias, so it waits for the sum.
  const std::span<const float> bias = std::exchange(part.bias, {});
  const LinearShape& shape = part.shape;
  const Region region = row_region(group, shape, pass.workspace);
  sum_rows(
      region.exchange,
      [&](Part rows, float* to) {
        layers::linear_forward(with_rows(part, rows.count),
                               pass.x + row_offset(rows.first, shape.inputs), to);
      },
      [&](Part own, float* sums) {
        const std::ptrdiff_t at = row_offset(own.first, shape.outputs);
        finish_rows({.rows = own.count, .width = shape.outputs}, bias, pass.residual + at, sums,
                    pass.y + at);
      });
}

void column_backward(Group& group, const LinearBackward& pass) {
  const Region region = column_region(group, pass.layer.shape, pass.workspace);
  InFlight flight;
  // The input's rows are there by the time that the first product is done.
  AllRows x = start_all_rows(region, pass.x);
  flight.add(std::move(x.work));
  flight.add(start_input_gradient(region, pass));
  flight.wait(0);
  add_weight(pass, x.rows, pass.dy);
  flight.wait(1);
}

Work column_backward_input(Group& group, const LinearBackward& pass) {
  return start_input_gradient(column_region(group, pass.layer.shape, pass.workspace), pass);
}

void column_backward_weight(Group& group, const LinearBackward& pass) {
  const Region region = column_region(group, pass.layer.shape, pass.workspace);
  AllRows x = start_all_rows(region, pass.x);
  x.work.wait();
  add_weight(pass, x.rows, pass.dy);
}

void row_backward(Group& group, const LinearBackward& pass) {
  const Region region = row_region(group, pass.layer.shape, pass.workspace);
  add_weight(pass, pass.x, gathered_input_gradient(region, pass));
}

void row_backward_input(Group& group, const LinearBackward& pass) {
  gathered_input_gradient(row_region(group, pass.layer.shape, pass.workspace), pass);
}

void row_backward_weight(Group& group, const LinearBackward& pass) {
  const Region region = row_region(group, pass.layer.shape, pass.workspace);
  AllRows dy = start_all_rows(region, pass.dy);
  dy.work.wait();
  add_weight(pass, pass.x, dy.rows);
}

}  // namespace sprat::tensor
