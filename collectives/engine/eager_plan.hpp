// Calls on one host whose inputs are so short that they travel in the announcement: what a rank has
// left to do once all have announced.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/kernels/prepared_reduction.hpp"
#include "collectives/kernels/reduce.hpp"
#include "collectives/plan/plan.hpp"

namespace sprat::collectives {

/// Offsets are in bytes, from the beginning of a rank's input or of my output.
struct EagerPlan {
  struct Peer {
    int rank = 0;
    std::size_t input_bytes = 0;  ///< All of its input's.
  };
  struct Copy {
    int rank = 0;
    std::size_t from = 0, to = 0, bytes = 0;
  };
  struct Part {
    int rank = 0;
    std::size_t from = 0;
    RankRange covers;
  };
  struct Reduction {
    std::vector<Part> parts;  ///< In canonical order.
    std::size_t to = 0, count = 0;
    PreparedReduction prepared;  ///< May be empty.
  };

  bool fits = false;            ///< Else all that follows is empty.
  bool runs_ahead = false;      ///< It ends when those that it reads have called: see below.
  bool shows_input = false;     ///< Peers read this rank's input,
  std::size_t input_bytes = 0;  ///< which is so long.
  std::size_t longest_input_bytes = 0;  ///< Of all that are read.
  std::vector<Peer> reads;              ///< Peers whose inputs this rank reads.
  std::vector<Copy> copies;
  std::vector<Reduction> reductions;

  /// Of what travels in the announcement.
  std::size_t shown_bytes() const { return shows_input ? input_bytes : 0; }
};

/// If some ranks of a call are eager and others are not, every eager one reads one that is not, and
/// then goes by its plan's steps: others may wait for it to leave their memory.
/// Where a rank may be through with a call before it has heard from every other, as the root of a
/// broadcast is, it need not wait for those that it reads nothing of.
/// A plan fits if its rank reads nothing but inputs, each of at most `most_bytes`, and all ranks
/// share a host. Whether peers' inputs are as short, their announcements tell.
EagerPlan eager_plan_of(const Problem& problem, const Plan& plan, std::size_t most_bytes);

/// `inputs` by rank; only my own may overlap the output, and only as its block. `terms` is scratch.
void finish(const EagerPlan& eager, const Arithmetic& arithmetic,
            std::span<const std::byte* const> inputs, std::byte* output, std::vector<Term>& terms);

}  // namespace sprat::collectives
