// Files are touched for the first time since they were imported from S3: reads wait until they are
// back.
#include <fmt/core.h>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

// Fewer may be one file at the end of the window of restores.
constexpr double fewest_blocked = 0.5;

std::optional<Cause> find_released(const ObservedWindow& window, const Past&, const StorageFacts&) {
  if (window.reads_blocked < fewest_blocked) {
    return std::nullopt;
  }
  constexpr double giga = 1e9, kilo = 1e3, mega = 1e6;
  const double left = window.released_left_bytes;
  const std::string when = window.restored_mbps > 0
                               ? time_figure(left / (window.restored_mbps * mega))
                               : std::string("unknown, nothing came back yet");
  return Cause{
      Limit::released,
      fmt::format("first touch from S3: {} reads wait for files that are being restored at "
                  "{} GB/s; {} GB are left, ready in: {}",
                  figure(window.reads_blocked), figure(window.restored_mbps / kilo),
                  figure(left / giga), when),
      "restore the files before the run: lfs hsm_restore FILE..., in batches of 1,000"};
}

}  // namespace

extern const CauseKind released_cause;
const CauseKind released_cause = {Limit::released, "released", true, false, 3, find_released};

}  // namespace sprat::io
