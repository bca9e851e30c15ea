// A model's state as one rank keeps it between steps: what checkpoints read and write.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fsdp/plan/layout.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// One unit's state as this rank keeps it between steps. A unit that other ranks alone have is one
/// whose part and copy are -1, without values.
struct StoredUnit {
  const UnitSpec* spec = nullptr;  ///< Names, shapes.
  FlatLayout layout;
  int parts = 1, part = 0;   ///< This rank holds part `part` of `parts` equal ones of the buffer,
  int copies = 1, copy = 0;  ///< and is one of `copies` ranks that hold the same.
  std::vector<int> holders;  ///< The rank that holds (copy, part), at copy * parts + part.
  std::vector<std::span<float>> values;  ///< By state, layout.padded / parts elements each.

  bool is_held() const { return part >= 0; }

  /// Of unit `number`: the copy that meets the disk for all, so that copies share the work.
  int disk_copy(std::size_t number) const {
    return static_cast<int>(number % static_cast<std::size_t>(copies));
  }
};

struct ModelState {
  /// "" (the f32 parameters themselves), then the optimizer's, such as "exp_avg".
  std::vector<std::string> states;
  std::vector<StoredUnit> units;
};

}  // namespace sprat::fsdp
