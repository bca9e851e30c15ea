// Sums of hashes, which are the same however a tensor is cut.
#include "checkpoint/checks/ties.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/agreement.hpp"
#include "checkpoint/plan/held_parameters.hpp"
#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "fsdp/plan/layout.hpp"

namespace sprat::fsdp {
namespace {

struct Tie {
  ParameterPlace copy, owner;
};

/// A copy is tied to the part of the tensor that is the same box.
std::vector<Tie> ties_of(const ModelState& held) {
  std::vector<Tie> ties;
  for (const auto& [name, parameter] : held_parameters(held)) {
    for (const ParameterPlace& copy : parameter.copies) {
      const auto owner = std::ranges::find_if(parameter.parts, [&](const ParameterPlace& part) {
        return held_box(spec_at(held, part)) == held_box(spec_at(held, copy));
      });
      if (owner != parameter.parts.end()) {
        ties.push_back({.copy = copy, .owner = *owner});
      }
    }
  }
  return ties;
}

/// Of values that begin at element `first` of a box's state: of each its hash, mixed with its
/// place. However a box is cut into shards, all of them add up to the same sum.
std::uint64_t sum_of_hashes(std::span<const float> values, std::size_t first, std::size_t state) {
  std::uint64_t sum = 0;
  for (const float& value : values) {
    sum += mix_bits(XXH3_64bits(&value, sizeof(value)) ^ mix_bits(first++ << 8 | state));
  }
  return sum;
}

/// What this rank adds to the sum over a parameter's elements: of several copies of a part one
/// alone is counted.
std::uint64_t own_sum(const ModelState& held, const ParameterPlace& place) {
  const StoredUnit& unit = held.units[place.unit];
  if (!unit.is_held() || unit.copy != 0) {
    return 0;
  }
  std::uint64_t sum = 0;
  for (const ShardPiece& piece : shard_layout(unit.layout, unit.parts, unit.part).pieces) {
    for (std::size_t state = 0; state < unit.values.size(); ++state) {
      if (piece.parameter == static_cast<int>(place.index)) {
        sum += sum_of_hashes(unit.values[state].subspan(piece.shard_offset, piece.count),
                             piece.parameter_offset, state);
      }
    }
  }
  return sum;
}

}  // namespace

void check_ties(Communicator& world, const ModelState& held) {
  const std::vector<Tie> ties = ties_of(held);
  if (ties.empty()) {
    return;
  }
  std::vector<std::uint64_t> sums;
  for (const Tie& tie : ties) {
    sums.push_back(own_sum(held, tie.copy));
    sums.push_back(own_sum(held, tie.owner));
  }
  world.all_reduce(elements(sums), ReduceOp::sum, {.timeout = {}, .blocking = true}).wait();
  for (std::size_t number = 0; number < ties.size(); ++number) {
    const auto& [copy, owner] = ties[number];
    const StoredUnit &unit = held.units[copy.unit], &other = held.units[owner.unit];
    if (sums[2 * number] != sums[2 * number + 1]) {
      throw Error(ErrorCode::mismatch,
                  text("parameter \"", spec_at(held, copy).name, "\" of unit \"", unit.spec->name,
                       "\" (rank ", rank_in_job(world, unit.holders[0]),
                       ") differs from the one of unit \"", other.spec->name, "\" (rank ",
                       rank_in_job(world, other.holders[0]),
                       ") that it is tied to, or its optimizer state does, and nothing was saved: "
                       "both are to take the same gradient at every step. Go on from the "
                       "last checkpoint"));
    }
  }
}

}  // namespace sprat::fsdp
