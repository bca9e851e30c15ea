// Files are opened faster than the metadata server likes.
#include <fmt/core.h>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

constexpr double slow_open_s = 5e-3;
// Few opens are no storm, however slow.
constexpr double fewest_opens = 10;
// A server at its limit answers a little less than its limit.
constexpr double near_limit = 0.9;

std::optional<Cause> find_metadata(const ObservedWindow& window, const Past&,
                                   const StorageFacts& facts) {
  constexpr double operations_of_an_open = 0.5;
  const double iops = window.opens_per_second * operations_of_an_open * facts.hosts;
  const bool at_limit = facts.metadata_iops && iops >= near_limit * *facts.metadata_iops;
  const bool slow = window.open_p95_s > slow_open_s;
  if (window.opens_per_second < fewest_opens || !(at_limit || slow)) {
    return std::nullopt;
  }
  const std::string of_size =
      facts.mean_file_bytes > 0
          ? fmt::format(" of {} KB on average", figure(facts.mean_file_bytes / 1e3))
          : std::string();
  const std::string limit = at_limit
                                ? fmt::format(", at the {} operations a second that the server has",
                                              figure(*facts.metadata_iops))
                                : std::string();
  return Cause{
      Limit::metadata,
      fmt::format("metadata-bound: {} files{} are opened a second, p95 of an open is {}{}",
                  figure(window.opens_per_second), of_size, time_figure(window.open_p95_s), limit),
      "pack the files into shards of 100 MB or more"};
}

}  // namespace

extern const CauseKind metadata_cause;
const CauseKind metadata_cause = {Limit::metadata, "metadata", true, false, 3, find_metadata};

}  // namespace sprat::io
