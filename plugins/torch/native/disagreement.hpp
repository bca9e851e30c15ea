// What each rank handed to an operation that ranks disagree on: its tensors' shapes.
#pragma once

#include <memory>
#include <string>

#include "plugins/torch/native/store.hpp"

namespace sprat::pytorch {

/// Where the ranks of a group tell each other, once something has gone wrong.
struct Notes {
  c10::intrusive_ptr<c10d::Store> store;
  std::string group;
  int rank = 0, size = 1;
};

/// Leaves `mine` in the store and waits a moment for the others': "\nrank 0: all_reduce of [4, 3]
/// float32\nrank 1: ...". Empty if the store is gone.
std::string compare_notes(const Notes& notes, const std::string& mine);

}  // namespace sprat::pytorch
