// A reduction that is checked and dispatched once, to be run again and again on other memory.
//
// Of a few elements, finding the kernel takes longer than running it.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/kernels/reduce.hpp"

namespace sprat::collectives {

class PreparedReduction {
 public:
  static constexpr std::size_t most_contributions = 8;
  /// Empty.
  PreparedReduction() = default;
  /// Of contributions of these ranks, one after the other, in the input's type. Empty where no
  /// kernel does all of it in one sweep: then reduce() is to be called.
  static PreparedReduction of(const Arithmetic& arithmetic, std::span<const RankRange> covers);

  explicit operator bool() const { return sweep_ != nullptr; }
  /// What reduce() gives, bit for bit, with its contract. Not of an empty one.
  void run(const void* const* contributions, void* to, std::size_t count) const;

  /// A kernel of as many contributions as it was chosen for.
  using Sweep = void (*)(const void* const* contributions, void* to, std::size_t count);

 private:
  explicit PreparedReduction(Sweep sweep) : sweep_(sweep) {}
  Sweep sweep_ = nullptr;
};

}  // namespace sprat::collectives
