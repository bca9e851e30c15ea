// The table of tiers: every file of io/tiers/, in order.
#include "io/tier_kind.hpp"

#include <array>

// One entry a file; a test compares the list with the folder.
#define SPRAT_TIERS(entry) entry(file) entry(memory) entry(throttled)

namespace sprat::io {

#define SPRAT_DECLARE(name) extern const TierKind name##_tier;
SPRAT_TIERS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const TierKind* const> all_tier_kinds() noexcept {
#define SPRAT_ADDRESS(name) &name##_tier,
  static constexpr std::array tiers = {SPRAT_TIERS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return tiers;
}

}  // namespace sprat::io
