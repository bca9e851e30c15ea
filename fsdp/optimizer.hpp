// What an optimizer is, and the table of those there are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// A number by which an optimizer is tuned; accepted where least <= value < below.
struct Hyperparameter {
  const char* name;
  double standard, least, below;
};

/// State of the same elements, in arrays of equal length that do not overlap. `states` are in the
/// order of OptimizerKind::states.
struct OptimizerElements {
  std::span<float> parameters;
  std::span<const float> gradients;
  std::span<const std::span<float>> states;
};

/// One update rule and its numbers: arithmetic on elements, no communication. State begins as zero.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// The numbers of step `step`, from 1, with what gradients are multiplied by first. They depend
  /// on these arguments alone, so a run that resumes here has the bits of one that went on.
  virtual void begin_step(std::int64_t step, float learning_rate, double gradient_scale) = 0;

  /// Updates each element by itself, by IEEE basic operations in a fixed order: the bits depend
  /// neither on how elements are cut into ranges nor on the processor's vectors. An element of
  /// which all is zero stays zero. `decay`: weight decay applies.
  virtual void update(bool decay, const OptimizerElements& elements) const = 0;
};

/// A row of the table.
struct OptimizerKind {
  const char* name;
  std::span<const char* const> states;  ///< Names as in checkpoints, such as "exp_avg".
  std::span<const Hyperparameter> hyperparameters;
  /// Of a value for every hyperparameter, each in its range. Throws if they are at odds.
  std::unique_ptr<Optimizer> (*make)(const std::map<std::string, double>& values);
};
std::span<const OptimizerKind* const> all_optimizers() noexcept;

/// Throws Error{invalid_argument} with the names there are.
const OptimizerKind& optimizer_named(std::string_view name);

/// Throws Error{invalid_argument} naming what is unknown, with what is known, or out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace sprat::fsdp
