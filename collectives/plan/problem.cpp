// Groupings of ranks by host, and what a problem's numbers mean.
#include "collectives/plan/problem.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

// Elements: whole cache lines of every type, so that ranks that write neighbouring slices of one
// buffer do not write one line.
constexpr std::size_t slice_alignment = 64;

}  // namespace

const char* name(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::barrier:
      return "barrier";
    case Collective::reduce:
      return "reduce";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::gatherv:
      return "gatherv";
    case Collective::scatterv:
      return "scatterv";
    case Collective::all_to_allv:
      return "all_to_allv";
  }
  return "unknown collective";
}

std::span<const Collective> all_collectives() noexcept {
  static constexpr std::array collectives = {
      Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
      Collective::broadcast,  Collective::all_to_all, Collective::reduce,
      Collective::gather,     Collective::scatter,    Collective::gatherv,
      Collective::scatterv,   Collective::all_to_allv};
  return collectives;
}

[[gnu::hot]] bool reduces(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

bool has_root(Collective collective) noexcept {
  switch (collective) {
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
    case Collective::gatherv:
    case Collective::scatterv:
      return true;
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::all_to_allv:
    case Collective::barrier:
      return false;
  }
  return false;
}

[[gnu::hot]] bool exchanges(Collective collective) noexcept {
  return collective == Collective::gatherv || collective == Collective::scatterv ||
         collective == Collective::all_to_allv;
}

[[gnu::hot]] BlockCounts::BlockCounts(std::vector<std::size_t> counts)
    : counts_(std::move(counts)), offsets_(counts_.size() + 1) {
  std::partial_sum(counts_.begin(), counts_.end(), offsets_.begin() + 1);
}

std::size_t BlockCounts::largest() const {
  return counts_.empty() ? 0 : *std::max_element(counts_.begin(), counts_.end());
}

// All blocks are cut at the same places, so every rank can say without asking how long its part of
// any window is. Short blocks end in earlier windows than long ones.
BlockCounts BlockCounts::window(std::size_t first, std::size_t count) const {
  std::vector<std::size_t> parts;
  for (const std::size_t whole : counts_) {
    parts.push_back(std::min(whole - std::min(whole, first), count));
  }
  return BlockCounts(std::move(parts));
}

Grouping::Grouping(const std::vector<int>& host_of) {
  require(!host_of.empty(), "a grouping needs at least one rank");
  // Labels may be any numbers. Hosts get theirs in the order of their lowest ranks, which is the
  // same on every rank whatever the labels are.
  std::unordered_map<int, int> hosts;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    const auto [entry, is_new] =
        hosts.try_emplace(host_of[rank], static_cast<int>(members_.size()));
    if (is_new) {
      members_.emplace_back();
    }
    const int host = entry->second;
    host_of_.push_back(host);
    local_index_.push_back(static_cast<int>(members_[host].size()));
    members_[host].push_back(rank);
  }
  // From the root down: a node whose ranks share a host is a subtree of that host, and maximal
  // because its parent was none. Any other node is cut as the canonical tree cuts it.
  subtrees_.resize(members_.size());
  std::vector<RankRange> open = {{0, ranks()}};
  while (!open.empty()) {  // the left half is on top, so each host's subtrees come out ascending
    const RankRange range = open.back();
    open.pop_back();
    const int host = host_of_[range.first];
    const auto begin = host_of_.begin() + range.first, end = host_of_.begin() + range.last;
    if (std::all_of(begin, end, [host](int other) { return other == host; })) {
      subtrees_[host].push_back(range);
      continue;
    }
    const int middle = split_point(range);
    open.push_back({middle, range.last});
    open.push_back({range.first, middle});
  }
}

// Ranks of the whole reduction, whatever a term covers: avg divides by all of them.
[[gnu::hot]] Arithmetic arithmetic_of(const Problem& problem) {
  return {.input = problem.input,
          .output = problem.output,
          .op = problem.op.op(),
          .factor = problem.op.factor(),
          .user = problem.op.user_op(),
          .ranks = problem.ranks(),
          .complete = true};
}

DType Problem::accumulator() const { return accumulator_of(input, op.op()); }

// Ranks choose their algorithm by this number, so it may hold nothing that only some of them know:
// hence 0 for exchanges, whose counts differ from rank to rank.
[[gnu::hot]] std::size_t Problem::payload_bytes() const {
  const auto all = static_cast<std::size_t>(ranks());
  const std::size_t in = count * size_of(input), out = count * size_of(output);
  const std::size_t whole = counts ? counts->total() : all * count;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
      return std::max(in, out);
    case Collective::reduce:
      return in;  // the root alone knows the type of what comes out
    case Collective::all_gather:
    case Collective::gather:
      return std::max(in, whole * size_of(output));
    case Collective::reduce_scatter:
    case Collective::scatter:
      return std::max(whole * size_of(input), out);
    case Collective::all_to_all:
      return all * std::max(in, out);
    case Collective::gatherv:
    case Collective::scatterv:
    case Collective::all_to_allv:
    case Collective::barrier:
      return 0;
  }
  return 0;
}

// The first parts get one unit more each until the rest is used up. The last unit may be short, so
// the last part that has any may be shorter than the others.
Slice slice(std::size_t count, int parts, int index) {
  const std::size_t units = (count + slice_alignment - 1) / slice_alignment;
  const auto divisor = static_cast<std::size_t>(parts);
  const std::size_t each = units / divisor, extra = units % divisor;
  const auto boundary = [&](std::size_t position) {
    return std::min(count, (position * each + std::min(position, extra)) * slice_alignment);
  };
  const auto position = static_cast<std::size_t>(index);
  const std::size_t first = boundary(position);
  return {.offset = first, .count = boundary(position + 1) - first};
}

}  // namespace sprat::collectives
