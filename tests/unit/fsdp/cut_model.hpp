// A job whose tensor ranks each train a part of every tensor, with gradients that go by names and
// places in the whole tensors: its values may not depend on how tensors are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/fsdp.hpp"
#include "tests/unit/fsdp/cut.hpp"
#include "tests/unit/fsdp/small_model.hpp"

namespace sprat::fsdp {

struct CutJob {
  int data_ranks = 1, tensor_ranks = 1;
  Cut cut = Cut::rows;
  FsdpOptions options = {};

  int ranks() const { return data_ranks * tensor_ranks; }
  std::string text() const {
    return std::to_string(data_ranks) + " data ranks, " + std::to_string(tensor_ranks) +
           " tensor ranks by " + cut_name(cut);
  }
};

/// Tensors of one to three dimensions, a scalar, and one that has no element.
inline std::vector<UnitSpec> cut_units() {
  const std::vector<std::pair<std::string, std::vector<std::vector<std::int64_t>>>> shapes = {
      {"embed", {{67, 33}, {}}}, {"h.0", {{9, 5, 31}, {33}, {0, 7}}}, {"h.1", {{33, 130}, {700}}}};
  std::vector<UnitSpec> units;
  for (const auto& [unit, of_unit] : shapes) {
    units.push_back({.name = unit, .parameters = {}});
    for (const auto& shape : of_unit) {
      const std::string name = unit + ".p" + std::to_string(units.back().parameters.size());
      units.back().parameters.push_back(
          {.name = name,
           .shape = shape,
           .decay = shape.size() > 1,
           .initial = [key = std::hash<std::string>()(name)](std::uint64_t index) {
             return noise(key_of(key, 3, index, 0));
           }});
    }
  }
  return units;
}

/// What one rank has of the job.
class CutPart {
 public:
  CutPart(Communicator& world, const CutJob& job)
      : tensor_rank_(world.rank() % job.tensor_ranks),
        data_(*world.split(tensor_rank_, world.rank())),
        units_(part_of(cut_units(), job.cut, job.tensor_ranks, tensor_rank_)),
        model_(data_, units_, without_clipping(job.options)) {}

  ShardedModel& model() { return model_; }

  void train(int step) {
    compute(step);
    model_.step(small_rate);
  }
  /// Of each unit, in a step that is thrown away.
  std::vector<SquareSum> square_sums() {
    compute(0);
    model_.finish_gradients();
    const std::vector<SquareSum> sums = model_.square_sums();
    model_.apply(0, std::numeric_limits<double>::infinity());
    return sums;
  }
  bool leads_data_ranks() const { return data_.rank() == 0; }

  using Tensors = std::map<std::string, std::vector<float>>;
  /// Puts what this rank has of every parameter into the whole tensors, from an evaluation.
  void collect(Tensors& tensors, std::mutex& mutex) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      model_.acquire(static_cast<int>(unit));
      for (std::size_t index = 0; index < units_[unit].parameters.size(); ++index) {
        const ConstElements values =
            model_.parameter_elements(static_cast<int>(unit), static_cast<int>(index));
        std::vector<float> wide(values.count);
        widen(values, wide);
        const std::lock_guard lock(mutex);
        put(units_[unit].parameters[index], wide, tensors);
      }
      model_.release(static_cast<int>(unit));
    }
  }

 private:
  static FsdpOptions without_clipping(FsdpOptions options) {
    options.clip_norm = 0;  // a norm is of all tensor ranks, and each of them steps alone here
    return options;
  }
  void compute(int step) {
    const int count = static_cast<int>(units_.size());
    for (int unit = 0; unit < count; ++unit) {
      model_.acquire(unit);
      model_.release(unit);
    }
    for (int unit = count - 1; unit >= 0; --unit) {
      model_.acquire(unit);
      const auto& parameters = units_[static_cast<std::size_t>(unit)].parameters;
      for (std::size_t index = 0; index < parameters.size(); ++index) {
        add_gradient(unit, static_cast<int>(index), parameters[index], step);
      }
      model_.release(unit);
      model_.reduce(unit);
    }
  }
  void add_gradient(int unit, int index, const ParameterSpec& parameter, int step) {
    const std::span<float> gradient = model_.gradient(unit, index);
    const std::uint64_t name = std::hash<std::string>()(parameter.name);
    auto next = gradient.begin();
    for_each_run(whole_box(parameter.shape), held_box(parameter), [&](BoxRun run) {
      for (std::int64_t at = run.offset; at < run.offset + run.count; ++at) {
        *next++ += noise(key_of(name, static_cast<std::uint64_t>(data_.rank()),
                                static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(at)));
      }
    });
  }
  static void put(const ParameterSpec& parameter, const std::vector<float>& values,
                  Tensors& tensors) {
    const Box whole = whole_box(parameter.shape);
    std::vector<float>& tensor = tensors[parameter.name];
    tensor.resize(static_cast<std::size_t>(element_count(whole)));
    auto next = values.begin();
    for_each_run(whole, held_box(parameter), [&](BoxRun run) {
      for (std::int64_t at = run.offset; at < run.offset + run.count; ++at) {
        tensor[static_cast<std::size_t>(at)] = *next++;
      }
    });
  }

  int tensor_rank_;
  Communicator data_;
  std::vector<UnitSpec> units_;
  ShardedModel model_;
};

}  // namespace sprat::fsdp
