// The table of algorithms: every file of collectives/algorithms/, in order.
#include "collectives/plan/algorithm.hpp"

#include <array>

// One line a file; a test compares the list with the folder.
#define SPRAT_ALGORITHMS(entry)                                                                    \
  entry(all_gather_bruck) entry(all_gather_direct) entry(all_gather_hierarchical)                  \
      entry(all_reduce_direct) entry(all_reduce_doubling) entry(all_reduce_hierarchical)           \
          entry(all_reduce_one_shot) entry(all_reduce_ring) entry(all_to_all_direct)               \
              entry(all_to_allv_exchange) entry(barrier_dissemination) entry(broadcast_chain)      \
                  entry(broadcast_flat) entry(gather_direct) entry(gatherv_exchange)               \
                      entry(reduce_direct) entry(reduce_hierarchical) entry(reduce_scatter_direct) \
                          entry(reduce_scatter_doubling) entry(reduce_scatter_hierarchical)        \
                              entry(reduce_scatter_ring) entry(scatter_direct)                     \
                                  entry(scatterv_exchange)

namespace sprat::collectives {

#define SPRAT_DECLARE(file) extern const Algorithm file;
SPRAT_ALGORITHMS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const Algorithm* const> all_algorithms() noexcept {
#define SPRAT_ADDRESS(file) &file,
  static constexpr std::array algorithms = {SPRAT_ALGORITHMS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return algorithms;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) noexcept {
  for (const Algorithm* algorithm : all_algorithms()) {
    if (algorithm->collective == collective && algorithm->name == name) {
      return algorithm;
    }
  }
  return nullptr;
}

}  // namespace sprat::collectives
