// A stage of decoding keeps its threads busy all the time.
#include <fmt/core.h>

#include <algorithm>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

constexpr double all_busy = 0.85;

std::optional<Cause> find_decode(const ObservedWindow& window, const Past&, const StorageFacts&) {
  const auto busiest = std::ranges::max_element(window.stages, {}, &ObservedStage::busy);
  if (busiest == window.stages.end() || busiest->busy <= all_busy) {
    return std::nullopt;
  }
  return Cause{Limit::decode,
               fmt::format("CPU-bound in {}: its {} threads are busy {:.0f} % of the time, at {} "
                           "samples/s",
                           busiest->name, figure(busiest->threads), 100 * busiest->busy,
                           figure(window.samples_per_second)),
               "give it more threads, or keep the data in a format that costs less to decode"};
}

}  // namespace

extern const CauseKind decode_cause;
const CauseKind decode_cause = {Limit::decode, "decode", true, false, 3, find_decode};

}  // namespace sprat::io
