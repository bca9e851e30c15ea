// The GPT's parameters: names, shapes, initial values.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "train/check.hpp"
#include "train/model/gpt.hpp"
#include "train/model/gpt_index.hpp"
#include "train/model/random.hpp"

namespace sprat::train {
namespace {

constexpr double weight_deviation = 0.02;

ParameterSpec weight(const std::string& name, int rows, int columns, double deviation,
                     std::uint64_t seed) {
  return {.name = name,
          .shape = {rows, columns},
          .decay = true,
          .initial = [stream = RandomStream(seed, name), deviation](std::uint64_t index) {
            return static_cast<float>(deviation * stream.normal(index));
          }};
}

ParameterSpec constant(const std::string& name, int size, float value) {
  return {.name = name, .shape = {size}, .decay = false, .initial = [value](std::uint64_t) {
            return value;
          }};
}

/// How tensor ranks share a parameter.
enum class Share {
  alike,    ///< Each has all of it.
  rows,     ///< Each has some; of a bias elements.
  columns,  ///< Each has some.
  heads,    ///< Each has some rows of query, of key and of value, which are one tensor.
};

/// The unit that takes a rank's parts of whole parameters.
class PartUnit {
 public:
  PartUnit(std::string name, const GptPlacement& placement)
      : placement_(placement), unit_{.name = std::move(name), .parameters = {}} {}

  PartUnit& add(ParameterSpec parameter, Share share) {
    const Box whole = whole_box(parameter.shape);
    if (placement_.tensor.degree == 1) {
      unit_.parameters.push_back(std::move(parameter));
    } else if (share == Share::alike) {
      parameter.tied = placement_.tensor_rank > 0;
      unit_.parameters.push_back(std::move(parameter));
    } else if (share == Share::heads) {
      constexpr int groups = 3;
      for (int group = 0; group < groups; ++group) {
        add_box(parameter, piece_of(whole, 0, groups, group), 0);
      }
    } else {
      add_box(std::move(parameter), whole, share == Share::columns ? 1 : 0);
    }
    return *this;
  }
  UnitSpec take() { return std::move(unit_); }

 private:
  /// The rank's piece of a box.
  void add_box(ParameterSpec parameter, const Box& box, int dimension) {
    parameter.box = piece_of(box, dimension, placement_.tensor.degree, placement_.tensor_rank);
    unit_.parameters.push_back(std::move(parameter));
  }

  const GptPlacement& placement_;
  UnitSpec unit_;
};

UnitSpec block(const GptShape& shape, int index, std::uint64_t seed,
               const GptPlacement& placement) {
  const std::string name = "h." + std::to_string(index);
  // GPT-2 scales what is added to the residual stream by its 2 * layers additions.
  const double onto_stream = weight_deviation / std::sqrt(2.0 * shape.layers);
  const int width = shape.width, hidden = shape.hidden();
  return PartUnit(name, placement)
      .add(constant(name + ".ln_1.weight", width, 1.0f), Share::alike)
      .add(constant(name + ".ln_1.bias", width, 0.0f), Share::alike)
      .add(weight(name + ".attn.c_attn.weight", 3 * width, width, weight_deviation, seed),
           Share::heads)
      .add(constant(name + ".attn.c_attn.bias", 3 * width, 0.0f), Share::heads)
      .add(weight(name + ".attn.c_proj.weight", width, width, onto_stream, seed), Share::columns)
      .add(constant(name + ".attn.c_proj.bias", width, 0.0f), Share::alike)
      .add(constant(name + ".ln_2.weight", width, 1.0f), Share::alike)
      .add(constant(name + ".ln_2.bias", width, 0.0f), Share::alike)
      .add(weight(name + ".mlp.c_fc.weight", hidden, width, weight_deviation, seed), Share::rows)
      .add(constant(name + ".mlp.c_fc.bias", hidden, 0.0f), Share::rows)
      .add(weight(name + ".mlp.c_proj.weight", width, hidden, onto_stream, seed), Share::columns)
      .add(constant(name + ".mlp.c_proj.bias", width, 0.0f), Share::alike)
      .take();
}

/// A unit of the whole model, as the placement's tensor rank has it.
UnitSpec unit_of(const GptShape& shape, int unit, std::uint64_t seed,
                 const GptPlacement& placement) {
  const auto table = [&](const char* name) {
    return PartUnit(name, placement)
        .add(weight("wte.weight", shape.vocabulary, shape.width, weight_deviation, seed),
             Share::rows)
        .take();
  };
  if (unit == table_unit) {
    return table("wte");
  }
  if (unit == position_unit) {
    return PartUnit("wpe", placement)
        .add(weight("wpe.weight", shape.context, shape.width, weight_deviation, seed), Share::alike)
        .take();
  }
  if (unit == norm_unit(shape)) {
    return PartUnit("ln_f", placement)
        .add(constant("ln_f.weight", shape.width, 1.0f), Share::alike)
        .add(constant("ln_f.bias", shape.width, 0.0f), Share::alike)
        .take();
  }
  return unit == head_unit(shape) ? table("head")
                                  : block(shape, unit - block_unit(0), seed, placement);
}

}  // namespace

std::vector<int> units_of_layer(const GptShape& shape, int layer) {
  if (layer == embedding_layer) {
    return {table_unit, position_unit};
  }
  if (layer == head_layer(shape)) {
    return {norm_unit(shape), head_unit(shape)};
  }
  return {block_unit(block_of(layer))};
}

void check_placement(const GptShape& shape, const GptPlacement& placement) {
  const std::vector<int>& first = placement.first_layer;
  const int layers = gpt_layer_count(shape);
  check(!first.empty() && first.front() == 0 && first.back() < layers &&
            std::ranges::adjacent_find(first, std::greater_equal<>()) == first.end(),
        "stages begin at layers {}; the first begins at 0, each behind the one before, and there "
        "are {} layers",
        fmt::join(first, ", "), layers);
  const std::vector<int>& stages = placement.stages;
  check(std::ranges::adjacent_find(stages, std::greater_equal<>()) == stages.end() &&
            (stages.empty() ||
             (stages.front() >= 0 && stages.back() < static_cast<int>(first.size()))),
        "a rank has stages {}; there are 0 to {}, named in rising order", fmt::join(stages, ", "),
        first.size() - 1);
  const int degree = placement.tensor.degree, rank = placement.tensor_rank;
  check(degree >= 1 && shape.heads % degree == 0 && rank >= 0 && rank < degree,
        "tensor rank {} of {} has a part of {} heads; the degree divides them, and ranks are "
        "counted from 0",
        rank, degree, shape.heads);
}

LayerRange layers_of_stage(const GptShape& shape, const GptPlacement& placement, int stage) {
  const std::size_t next = static_cast<std::size_t>(stage) + 1;
  return {.first = placement.first_layer[next - 1],
          .end = next < placement.first_layer.size() ? placement.first_layer[next]
                                                     : gpt_layer_count(shape)};
}

std::vector<int> own_units(const GptShape& shape, const GptPlacement& placement) {
  check_placement(shape, placement);
  std::vector<int> own(static_cast<std::size_t>(head_unit(shape)) + 1, -1);
  int next = 0;
  for (const int stage : placement.stages) {
    const LayerRange range = layers_of_stage(shape, placement, stage);
    for (int layer = range.first; layer < range.end; ++layer) {
      for (const int unit : units_of_layer(shape, layer)) {
        own[static_cast<std::size_t>(unit)] = next++;
      }
    }
  }
  return own;
}

std::vector<UnitSpec> gpt_units(const GptShape& shape, std::uint64_t seed,
                                const GptPlacement& placement) {
  const std::vector<int> own = own_units(shape, placement);
  std::vector<UnitSpec> units;
  for (int unit = 0; unit < static_cast<int>(own.size()); ++unit) {
    if (own[static_cast<std::size_t>(unit)] < 0) {
      continue;
    }
    UnitSpec spec = unit_of(shape, unit, seed, placement);
    spec.id = static_cast<std::uint64_t>(unit);
    if (unit == head_unit(shape)) {
      // Where the table is on another rank the head has a copy, with the same initial values.
      spec.tied_to = own[table_unit];
      // A copy on another rank goes by the table's number, for both are rounded by one chance.
      spec.parameters[table_values].tied = spec.tied_to < 0;
      spec.id = spec.tied_to < 0 ? std::uint64_t{table_unit} : *spec.id;
    }
    units.push_back(std::move(spec));
  }
  return units;
}

// Units are numbered as a forward uses them, so a rank's own come in their order.
std::vector<int> gpt_forward_order(const GptShape& shape, const GptPlacement& placement) {
  const std::vector<int> own = own_units(shape, placement);
  std::vector<int> order(
      static_cast<std::size_t>(std::ranges::count_if(own, [](int unit) { return unit >= 0; })));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace sprat::train
