// Weights are drawn anew for each block, so that a host that comes takes a little from all others.
#include "io/caches/owners.hpp"

#include <xxhash.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"

namespace sprat::io {

BlockOwners::BlockOwners(std::span<const std::string> hosts, std::size_t here) {
  require(here < hosts.size(), "process ", here, " of ", hosts.size(), " is none of those that ",
          "share blocks");
  std::map<std::string_view, std::vector<std::size_t>> processes;
  for (std::size_t process = 0; process < hosts.size(); ++process) {
    processes[hosts[process]].push_back(process);
  }
  const std::vector<std::size_t>& beside = processes[hosts[here]];
  const auto number = static_cast<std::size_t>(std::ranges::find(beside, here) - beside.begin());
  for (const auto& [host, those] : processes) {
    seeds_.push_back(XXH3_64bits(host.data(), host.size()));
    asked_.push_back(host == hosts[here] ? here : those[number % those.size()]);
  }
}

std::size_t BlockOwners::owner(const BlockKey& key) const {
  const std::uint64_t hash = group_hash(key);
  std::size_t best = 0;
  std::uint64_t highest = 0;
  for (std::size_t host = 0; host < seeds_.size(); ++host) {
    const std::uint64_t weight = mix_bits(hash ^ mix_bits(seeds_[host] + golden_step));
    // Of equal numbers the larger seed wins, whatever the order of hosts.
    const bool wins = weight > highest || (weight == highest && seeds_[host] > seeds_[best]);
    if (host == 0 || wins) {
      best = host;
      highest = weight;
    }
  }
  return asked_[best];
}

}  // namespace sprat::io
