// All parameters of the model on one rank, for what computes alone.
#pragma once

#include <span>
#include <vector>

#include "train/model/floats.hpp"
#include "train/model/parameters.hpp"
#include "train/model_part.hpp"

namespace sprat::train {

/// Whether each rank has all parameters whole, in memory of its own: what computes alone needs no
/// copy then.
bool has_whole_model(const ModelPart& part);
/// Bytes that rank 0 takes for one.
std::size_t whole_model_bytes(const GptShape& shape);

/// Values by unit of the whole model, in f32.
class WholeModel final : public Parameters {
 public:
  /// Collective over the job; rank 0 has them afterwards. Others hold nothing but the unit that
  /// they send. `own`: of `part`.
  WholeModel(ModelPart& part, Parameters& own, const TrainConfig& config);

  void acquire(int) override {}
  void release(int) override {}
  std::span<const float> values(int unit, int index) const override {
    return values_[static_cast<std::size_t>(unit)][static_cast<std::size_t>(index)];
  }
  std::span<float> gradients(int, int, int) override { return {}; }  // nobody trains it
  void reduce(int, int) override {}

 private:
  std::vector<std::vector<Floats>> values_;
};

}  // namespace sprat::train
