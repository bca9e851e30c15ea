// What a planner of partitions knows of a piece of a model: a layer, a module, an operation.
#pragma once

#include <string>
#include <vector>

namespace sprat::mp {

/// A parameter that several pieces use, such as an embedding that is also the last product.
struct SharedParameter {
  std::string name;
  double bytes = 0;

  friend bool operator==(const SharedParameter&, const SharedParameter&) = default;
};

/// What a piece costs by itself, without what is inside of it. Numbers are finite and at least 0;
/// bytes and times are compared with each other only, so any unit does if all pieces have the same.
struct ModelPiece {
  std::string name;
  double time = 0;                        ///< Forward and backward of one micro-batch.
  double parameter_bytes = 0;             ///< Of parameters that no other piece uses.
  double activation_bytes = 0;            ///< Kept from forward to backward, for one micro-batch.
  double output_bytes = 0;                ///< What the next piece takes from it.
  std::vector<SharedParameter> shared{};  ///< Of parameters that other pieces use too.
};

}  // namespace sprat::mp
