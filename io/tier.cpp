// The table of tiers: every file of io/tiers/, in order.
#include "io/tier.hpp"

#include <array>

#include "comm/base/check.hpp"

// One entry a file; a test compares the list with the folder.
#define SPRAT_TIERS(entry) entry(file) entry(memory)

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

std::unique_ptr<Tier> open_tier(std::string_view name) {
  const std::size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  const std::string place(colon == std::string_view::npos ? "" : name.substr(colon + 1));
  std::string known;
  for (const TierKind* one : all_tier_kinds()) {
    if (kind == one->name) {
      return one->open(place);
    }
    known += text(known.empty() ? "" : ", ", one->name);
  }
  throw Error(ErrorCode::invalid_argument,
              text("there is no tier \"", name, "\"; there are: ", known,
                   "; a file's folder follows a colon, as in file:/local/scratch"));
}

}  // namespace sprat::io
