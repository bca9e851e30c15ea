// One unit at run time: its parameters, its gradient and its optimizer's state on this rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdp/model_state.hpp"
#include "fsdp/optimizer.hpp"
#include "fsdp/unit_gradient.hpp"
#include "fsdp/unit_home.hpp"
#include "fsdp/unit_parameters.hpp"

namespace sprat::fsdp {

/// Not thread-safe. The calls that start or finish an operation are collective.
class Unit {
 public:
  /// Lays the unit out and fills what this rank keeps: of a tied one that is a gradient. `origins`
  /// as lay_out() has it; `id` is its number in the arenas.
  Unit(const UnitSpec& spec, std::span<const ParameterOrigin> origins, int id,
       const UnitHome& home);
  Unit(Unit&&) = delete;  // its parts refer to each other

  const FlatLayout& layout() const { return cut_.layout; }
  const Spread& spread() const { return home_.spread; }
  bool has_parameters() const { return parameters_.has_value(); }
  UnitParameters& parameters() { return *parameters_; }
  const UnitParameters& parameters() const { return *parameters_; }
  UnitGradient& gradient() { return gradient_; }
  /// Elements of parameters, each weight of the job counted once.
  std::size_t parameter_count() const;
  /// Bytes this rank keeps of the unit between steps.
  std::size_t kept_bytes() const;
  StoredUnit held();

  /// Adds this rank's part of the summed gradient, less what is tied, to the sums of the caller's
  /// units that it is of.
  void add_squares(std::span<SquareSum> sums);
  /// The update comes next, or the one after: state that is far is brought near.
  void fetch_state();
  /// Updates this rank's part, and starts to make what ranks keep of parameters whole again.
  void update(const Optimizer& optimizer, std::int64_t step);

 private:
  void release_state();

  UnitHome home_;
  UnitCut cut_;
  std::optional<UnitParameters> parameters_;
  UnitGradient gradient_;
  std::vector<KeptArray> states_;  // of the own part
};

}  // namespace sprat::fsdp
