#include "collectives/plan/windows.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::collectives {
namespace {

// Plan boundaries stay on cache lines of every element type.
constexpr std::size_t window_quantum = 64;
// Bytes of a window of several hosts that nobody stages. Such a call is cut all the same, because
// its partials of other hosts are held in scratch, which is some times as large.
constexpr std::size_t most_unstaged = 64 << 20;
// Up to here two copies through staging beat one through the kernel. Measured beside Open MPI by
// bench/compare/run with two ranks.
constexpr std::size_t most_staged = 4 << 20;

bool shares_hosts(const Problem& problem) {
  return problem.grouping->hosts() > 1 && problem.grouping->hosts() < problem.ranks();
}

/// Bytes of one element of every block that peers may read of a rank, the same on every rank.
[[gnu::hot]] std::size_t row_bytes(const Problem& problem) {
  const int rank = has_root(problem.collective) ? problem.root : problem.rank;
  std::size_t row = 0;
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    if (may_be_read(problem, buffer, rank)) {
      row += static_cast<std::size_t>(blocks_of(problem, buffer, rank)) *
             size_of(element_type(problem, buffer));
    }
  }
  return row;
}

}  // namespace

// Only a broadcast's output can be read, of those with a root: every rank gets the same, so ranks
// may pass it on.
bool may_be_read(const Problem& problem, Buffer buffer, int rank) {
  const bool own = buffer == Buffer::output && has_root(problem.collective) &&
                   problem.collective != Collective::broadcast;
  return !own && blocks_of(problem, buffer, rank) > 0;
}

// Reading through the kernel takes a processor longer than both copies, made at the same time in
// the caches; and what these two collectives share is read by more than one peer.
bool is_better_staged(const Problem& problem) {
  const bool often_read =
      problem.collective == Collective::all_reduce || problem.collective == Collective::broadcast;
  return often_read && problem.payload_bytes() <= most_staged;
}

Access access_between_hosts(const Problem& problem, const Algorithm& algorithm,
                            bool everybody_readable) {
  const bool may_stage = !everybody_readable || is_better_staged(problem) || algorithm.snapshots;
  return may_stage ? Access::staged : Access::direct;
}

[[gnu::hot]] bool asks_announcements(const Problem& problem, std::size_t staging_bytes) {
  return problem.grouping->hosts() == 1 && !exchanges(problem.collective) &&
         row_bytes(problem) * problem.count > staging_bytes / 2;
}

[[gnu::hot]] Windows cut(const Problem& problem, Access access, std::size_t staging_bytes) {
  const Windows whole{.count = problem.count, .number = 1};
  const bool cuttable =
      shares_hosts(problem) || (problem.grouping->hosts() == 1 && access == Access::staged);
  const std::size_t row = row_bytes(problem), half = staging_bytes / 2;
  const std::size_t room = access == Access::staged ? half : most_unstaged;
  if (exchanges(problem.collective) || !cuttable || row * problem.count <= room) {
    return whole;
  }
  need(access == Access::direct || row * window_quantum <= half, "SPRAT_STAGING is ", 2 * half,
       " bytes; ", problem.ranks(), " ranks need at least ", 2 * row * window_quantum,
       " for this call");
  const std::size_t count = std::max(window_quantum, room / row / window_quantum * window_quantum);
  return {.count = count, .number = (problem.count + count - 1) / count};
}

[[gnu::hot]] Window window_of(const Problem& problem, const Windows& windows, std::size_t index) {
  Window window{.index = index, .first = index * windows.count};
  window.count = std::min(windows.count, problem.count - window.first);
  window.counts = problem.counts;
  if (windows.number > 1 && problem.counts) {
    window.counts =
        std::make_shared<const BlockCounts>(problem.counts->window(window.first, window.count));
  }
  return window;
}

[[gnu::hot]] std::size_t elements_of(const Problem& problem, const Window& window, Buffer buffer,
                                     int rank) {
  if (window.counts) {
    return block_counts(problem, buffer) != nullptr ? window.counts->total()
                                                    : window.counts->count(rank);
  }
  return static_cast<std::size_t>(blocks_of(problem, buffer, rank)) * window.count;
}

}  // namespace sprat::collectives
