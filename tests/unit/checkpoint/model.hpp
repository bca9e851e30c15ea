// A model's state made by hand, for tests of checkpoints: any number of ranks, any parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/whole_model.hpp"
#include "fsdp/model_state.hpp"
#include "fsdp/plan/box_range.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/fsdp/cut.hpp"

namespace sprat::fsdp {

/// How units lie over ranks. Ranks of a stage count by data: replica * shards + shard.
struct Arrangement {
  int ranks = 1, shards = 1;
  bool over_all = false;  ///< Optimizer parts over shards and then replicas, as hfsdp has them.
  int stages = 1;
  bool stages_apart = false;  ///< A rank counts by data and then stage; else by stage, then data.
  int tensor_ranks = 1;       ///< Among which tensors are cut. They count first.
  Cut cut = Cut::rows;

  int stage_ranks() const { return ranks / (stages * tensor_ranks); }
  int parts() const { return over_all ? stage_ranks() : shards; }
  int tensor_rank(int rank) const { return rank % tensor_ranks; }
  int stage(int rank) const {
    const int of_tensor = rank / tensor_ranks;
    return stages_apart ? of_tensor / stage_ranks() : of_tensor % stages;
  }
  int data_rank(int rank) const {
    const int of_tensor = rank / tensor_ranks;
    return stages_apart ? of_tensor % stage_ranks() : of_tensor / stages;
  }
  /// Ranks of one group have the same part of the model.
  int group(int rank) const { return stage(rank) * tensor_ranks + tensor_rank(rank); }
  std::string text() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(shards) + " shards" +
           (over_all ? ", parts over all" : "") +
           (stages > 1 ? ", " + std::to_string(stages) + " stages" : "") +
           (stages_apart ? " apart" : "") +
           (tensor_ranks > 1
                ? ", tensors on " + std::to_string(tensor_ranks) + " by " + cut_name(cut)
                : "");
  }
};

inline ParameterSpec named(std::string name, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .shape = std::move(shape), .decay = true, .initial = {}};
}

inline ParameterSpec tied_to(ParameterSpec parameter) {
  parameter.tied = true;
  return parameter;
}

/// Sizes that no alignment divides; rows longer than parts; nothing at all. "small" is replicated.
inline std::vector<UnitSpec> awkward_units() {
  return {{.name = "embed", .parameters = {named("wte", {101, 64}), named("scalar", {})}},
          {.name = "block",
           .parameters = {named("w", {3, 7, 211}), named("empty", {0, 3}), named("flat", {0}),
                          named("one_row", {1, 5000}), named("six", {6})}},
          {.name = "block1", .parameters = {named("w1", {9, 1500}), named("b1", {1500})}},
          {.name = "small", .parameters = {named("ln", {17}), named("bias", {5, 2})}}};
}

/// Four units as stages have them: uneven ones, and of four stages one that has none. The last has
/// a copy of the first parameter of all, as the head of a GPT does.
inline std::vector<UnitSpec> units_of_stage(const std::vector<UnitSpec>& units, int stages,
                                            int stage) {
  if (stages == 1) {
    return units;
  }
  const std::vector<std::ptrdiff_t> ends = stages == 2 ? std::vector<std::ptrdiff_t>{0, 3, 4}
                                                       : std::vector<std::ptrdiff_t>{0, 1, 2, 2, 4};
  const auto at = static_cast<std::size_t>(stage);
  std::vector<UnitSpec> own(units.begin() + ends[at], units.begin() + ends[at + 1]);
  if (stage == stages - 1) {
    own.push_back({.name = "head", .parameters = {tied_to(units[0].parameters[0])}});
  }
  return own;
}

/// Any value that depends on state, name and index, exact in f32.
inline float value_of(const std::string& state, const std::string& name, std::size_t index) {
  std::uint64_t key = index * 0x9e3779b97f4a7c15u;
  for (const char letter : state + "/" + name) {
    key = (key ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return static_cast<float>(static_cast<std::int32_t>(key >> 40) - (1 << 23)) * 0x1p-23f;
}

/// One rank's part of it. Not copyable: `held` views it.
class HandMade {
 public:
  HandMade(const Arrangement& arrangement, int rank,
           std::vector<std::string> states = {"", "exp_avg", "exp_avg_sq"},
           std::vector<UnitSpec> units = awkward_units())
      : specs_(part_of(units_of_stage(units, arrangement.stages, arrangement.stage(rank)),
                       arrangement.cut, arrangement.tensor_ranks, arrangement.tensor_rank(rank))) {
    held_.states = std::move(states);
    for (const UnitSpec& spec : specs_) {
      add(spec, arrangement, arrangement.data_rank(rank));
    }
    whole_.emplace(held_);
  }
  HandMade(const HandMade&) = delete;
  HandMade& operator=(const HandMade&) = delete;

  /// What this rank's group has. Holders count by data.
  ModelState& held() { return held_; }
  /// The model of all groups, once they are joined.
  const ModelState& whole() const { return whole_->state(); }
  /// Collective, where there are groups. `group` is of the ranks of this one's.
  void join(Communicator& world, Communicator& group) { whole_.emplace(world, group, held_); }

  /// The values of value_of(), plus `shift`.
  void fill(float shift = 0) {
    each([&](float& value, float expected) { value = expected + shift; });
  }
  void spoil() {
    each([](float& value, float) { value = std::numeric_limits<float>::quiet_NaN(); });
  }
  /// Elements of parameters that are not as fill(shift) makes them, and gaps that are not zero.
  std::size_t wrong(float shift = 0) {
    std::size_t wrong_values = 0, zeros = 0, visited = 0, all = 0, all_zeros = 0;
    each([&](float& value, float expected) {
      wrong_values += value != expected + shift;
      zeros += value == 0;
      ++visited;
    });
    for (const StoredUnit& unit : held_.units) {
      for (const std::span<float> values : unit.values) {
        all += values.size();
        all_zeros += static_cast<std::size_t>(std::ranges::count(values, 0.0f));
      }
    }
    return wrong_values + ((all - visited) - (all_zeros - zeros));
  }

 private:
  void add(const UnitSpec& spec, const Arrangement& arrangement, int rank) {
    const int ranks = arrangement.stage_ranks(), replicas = ranks / arrangement.shards;
    StoredUnit unit{.spec = &spec, .layout = {}, .holders = {}, .values = {}};
    unit.parts = spec.name == "small" ? 1 : arrangement.parts();
    unit.copies = ranks / unit.parts;
    unit.layout = lay_out(spec, unit.parts);
    unit.holders.resize(static_cast<std::size_t>(ranks));
    for (int other = 0; other < ranks; ++other) {
      const int replica = other / arrangement.shards, shard = other % arrangement.shards;
      int part = arrangement.over_all ? shard * replicas + replica : shard;
      int copy = arrangement.over_all ? 0 : replica;
      if (unit.parts == 1) {
        part = 0;
        copy = other;
      }
      unit.holders[static_cast<std::size_t>(copy * unit.parts + part)] = other;
      if (other == rank) {
        unit.part = part;
        unit.copy = copy;
      }
    }
    auto& memory = memory_.emplace_back();
    for (std::size_t state = 0; state < held_.states.size(); ++state) {
      memory.emplace_back(unit.layout.padded / static_cast<std::size_t>(unit.parts), 0.0f);
    }
    for (auto& values : memory) {
      unit.values.push_back(values);
    }
    held_.units.push_back(std::move(unit));
  }

  template <class Visit>
  void each(Visit visit) {
    for (StoredUnit& unit : held_.units) {
      const ShardLayout mine = shard_layout(unit.layout, unit.parts, unit.part);
      for (std::size_t state = 0; state < held_.states.size(); ++state) {
        for (const ShardPiece& piece : mine.pieces) {
          const auto& spec = unit.spec->parameters[static_cast<std::size_t>(piece.parameter)];
          std::size_t at = piece.shard_offset;
          for_each_run_of_range(
              spec.shape, held_box(spec), piece.parameter_offset, piece.count, [&](BoxRun run) {
                for (std::int64_t index = run.offset; index < run.offset + run.count; ++index) {
                  visit(unit.values[state][at++],
                        value_of(held_.states[state], spec.name, static_cast<std::size_t>(index)));
                }
              });
        }
      }
    }
  }

  std::vector<UnitSpec> specs_;
  std::vector<std::vector<std::vector<float>>> memory_;
  ModelState held_;
  std::optional<WholeModel> whole_;
};

/// Runs `body` on each rank's part of a model.
template <class Body>
void on_ranks(const Arrangement& arrangement, Body body,
              const std::vector<UnitSpec>& units = awkward_units()) {
  run_virtual_ranks(arrangement.ranks, {}, [&](Communicator& world) {
    HandMade model(arrangement, world.rank(), {"", "exp_avg", "exp_avg_sq"}, units);
    if (arrangement.stages * arrangement.tensor_ranks > 1) {
      auto group =
          world.split(arrangement.group(world.rank()), arrangement.data_rank(world.rank()));
      model.join(world, *group);
    }
    body(world, model);
  });
}

}  // namespace sprat::fsdp
