// Preprocessing and reductions want more cores than there are, and reductions take longer for it.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "io/report/core_share.hpp"

namespace sprat::io {
namespace {

// Below, noise of a shared machine may be all.
constexpr double least_slowdown = 0.1;

std::optional<Cause> find_reductions(const ObservedWindow& window, const Past& past,
                                     const StorageFacts&) {
  const auto share = core_share(window, past);
  if (!share || !share->over || share->slowdown < least_slowdown) {
    return std::nullopt;
  }
  return Cause{Limit::reductions, core_share_sentence(*share),
               fmt::format("give decoding and reading {} cores less, or preprocess beforehand",
                           figure(std::max(1.0, std::ceil(share->wanted - share->budget))))};
}

}  // namespace

extern const CauseKind reductions_cause;
// It slows training whether or not samples are waited for.
const CauseKind reductions_cause = {Limit::reductions, "reductions", false, false, 3,
                                    find_reductions};

}  // namespace sprat::io
