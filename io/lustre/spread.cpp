#include "io/lustre/spread.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "comm/base/check.hpp"
#include "io/lustre/layout.hpp"

namespace sprat::io {
namespace {

/// Bytes on each target of the shards that are read at the same time.
class SpreadLoad {
 public:
  /// The most that one target would have with this shard too.
  std::uint64_t peak_with(const ShardTargets& shard) const {
    std::uint64_t peak = 0;
    for (const auto& [target, bytes] : shard.bytes) {
      const auto held = load_.find(target);
      peak = std::max(peak, bytes + (held == load_.end() ? 0 : held->second));
    }
    return peak;
  }
  void add(const ShardTargets& shard) {
    for (const auto& [target, bytes] : shard.bytes) {
      load_[target] += bytes;
    }
  }
  void remove(const ShardTargets& shard) {
    for (const auto& [target, bytes] : shard.bytes) {
      load_[target] -= bytes;
    }
  }

 private:
  std::map<Target, std::uint64_t> load_;
};

}  // namespace

ShardTargets targets_of(const FileLayout& layout) {
  std::map<Target, std::uint64_t> sums;
  for (const StripedRange& range : layout) {
    // Ranges may be of petabytes, so bytes are counted by stripes and not walked through.
    if (range.stripe_bytes == 0) {
      sums[range.targets.front()] += range.end - range.begin;
      continue;
    }
    const std::size_t stripes = range.targets.size();
    const auto before = bytes_of_stripes(range.begin, range.stripe_bytes, stripes);
    const auto up_to = bytes_of_stripes(range.end, range.stripe_bytes, stripes);
    for (std::size_t stripe = 0; stripe < stripes; ++stripe) {
      sums[range.targets[stripe]] += up_to[stripe] - before[stripe];
    }
  }
  ShardTargets shard;
  for (const auto& [target, bytes] : sums) {
    if (bytes > 0) {
      shard.bytes.emplace_back(target, bytes);
    }
  }
  return shard;
}

std::vector<std::uint32_t> spread_over_targets(std::span<const std::uint32_t> order,
                                               std::span<const ShardTargets> shards,
                                               const SpreadOptions& options) {
  require(options.window > 0 && options.look_ahead > 0, "spreading shards wants a window and a ",
          "look-ahead of 1 or more; they are ", options.window, " and ", options.look_ahead);
  SpreadLoad window;
  std::deque<std::pair<std::size_t, std::uint32_t>> candidates;  // place in `order`, shard
  std::vector<std::uint32_t> spread;
  spread.reserve(order.size());
  std::size_t taken = 0;
  while (spread.size() < order.size()) {
    while (taken < order.size() && candidates.size() < options.look_ahead) {
      candidates.emplace_back(taken, order[taken]);
      ++taken;
    }
    auto best = candidates.begin();
    // One that has waited as long as may be goes first, whatever it costs.
    if (best->first + options.look_ahead > spread.size()) {
      std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
      for (auto candidate = candidates.begin(); candidate != candidates.end(); ++candidate) {
        // Equal ones keep the order that they had.
        const std::uint64_t peak = window.peak_with(shards[candidate->second]);
        if (peak < least) {
          least = peak;
          best = candidate;
        }
      }
    }
    window.add(shards[best->second]);
    spread.push_back(best->second);
    candidates.erase(best);
    if (spread.size() >= options.window) {
      window.remove(shards[spread[spread.size() - options.window]]);
    }
  }
  return spread;
}

std::size_t first_of_host(std::size_t plan, int host, int hosts) {
  require(hosts > 0 && host >= 0 && host < hosts, "host ", host, " of ", hosts,
          " begins somewhere in a plan; it must be below the number");
  return plan / static_cast<std::size_t>(hosts) * static_cast<std::size_t>(host) +
         plan % static_cast<std::size_t>(hosts) * static_cast<std::size_t>(host) /
             static_cast<std::size_t>(hosts);
}

}  // namespace sprat::io
