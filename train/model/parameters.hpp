// Where a model's parameters and gradients are, as the model sees it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sprat/fsdp.hpp"
#include "train/model/floats.hpp"

namespace sprat::train {

/// Parameters by unit and index. The calls mean what those of ShardedModel mean, but that parts of
/// one tensor that follow each other in a unit are one, with one index: see held_tensors(). The
/// micro-batch is always named: a model that sees visits of a unit alone cannot tell those of an
/// evaluation from a step's, nor then which micro-batch they are of.
class Parameters {
 public:
  virtual ~Parameters() = default;
  virtual void acquire(int unit) = 0;
  virtual void release(int unit) = 0;
  virtual std::span<const float> values(int unit, int index) const = 0;
  virtual std::span<float> gradients(int unit, int index, int microbatch) = 0;
  virtual void reduce(int unit, int microbatch) = 0;
};

/// Of what this rank has of it.
std::size_t element_count(const ParameterSpec& parameter);

/// What a rank has of one tensor: some parameters of its unit, and their elements together.
struct HeldTensor {
  int first = 0, parts = 0;
  std::size_t count = 0;
};
std::vector<HeldTensor> held_tensors(const UnitSpec& unit);

/// Those of a sharded model, which must outlive this. Values that are gathered narrow are widened
/// while their unit is acquired.
class ShardedParameters final : public Parameters {
 public:
  /// `type`: the model's parameter_dtype.
  ShardedParameters(ShardedModel& model, const std::vector<UnitSpec>& units,
                    DType type = DType::f32);
  void acquire(int unit) override;
  void release(int unit) override;
  std::span<const float> values(int unit, int index) const override;
  std::span<float> gradients(int unit, int index, int microbatch) override;
  void reduce(int unit, int microbatch) override { model_.reduce(unit, microbatch); }
  /// Of widened values, at most, if one unit is acquired at a time.
  std::size_t bytes_planned() const { return narrow_ ? bytes_planned_ : 0; }

 private:
  /// A unit's values as f32, in memory that units lend each other.
  struct Wide {
    int acquired = 0;
    std::vector<Floats> values;  // by tensor
  };
  void widen_values(int unit);

  ShardedModel& model_;
  bool narrow_;
  std::vector<std::vector<HeldTensor>> tensors_;  // by unit
  std::size_t bytes_planned_ = 0;
  std::vector<Wide> wide_;     // by unit
  std::vector<Floats> spare_;  // of units that are not acquired
};

/// Whole, in this rank's own memory.
class WholeParameters final : public Parameters {
 public:
  /// At their initial values, with gradients of zero.
  explicit WholeParameters(const std::vector<UnitSpec>& units);
  /// Copies of the values of `other`, without gradients, visiting units in `order` (which may
  /// repeat units). Collective if `other` is sharded.
  WholeParameters(Parameters& other, const std::vector<UnitSpec>& units,
                  const std::vector<int>& order);
  void acquire(int) override {}
  void release(int) override {}
  std::span<const float> values(int unit, int index) const override {
    return values_[value_units_[unit]][index];
  }
  /// Its own, of a tied unit, too; of all micro-batches together.
  std::span<float> gradients(int unit, int index, int) override { return gradients_[unit][index]; }
  void reduce(int, int) override {}

  std::span<float> writable_values(int unit, int index) {
    return values_[value_units_[unit]][index];
  }

 private:
  std::vector<int> value_units_;  // by unit, the one that has its values
  std::vector<std::vector<Floats>> values_, gradients_;
};

}  // namespace sprat::train
