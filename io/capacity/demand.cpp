#include "io/capacity/demand.hpp"

#include <algorithm>
#include <cmath>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

constexpr double megabyte = 1e6;

/// Seconds for `bytes`, of which the servers' memory has a share.
double seconds_to_read(double bytes, double memory_share, double memory_mbps, double disk_mbps) {
  return bytes / megabyte * (memory_share / memory_mbps + (1 - memory_share) / disk_mbps);
}

}  // namespace

void check_demand(const StorageDemand& demand) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  require(positive(demand.epoch_bytes), "an epoch of ", demand.epoch_bytes,
          " bytes; it must have some");
  require(positive(demand.epoch_seconds), "an epoch of ", demand.epoch_seconds,
          " seconds; it must take some");
  require(demand.hosts > 0, demand.hosts, " hosts; there must be 1 or more");
  require(std::isfinite(demand.cache_bytes) && demand.cache_bytes >= 0, "a cache of ",
          demand.cache_bytes, " bytes; it must be 0 or more");
  require(std::isfinite(demand.files) && demand.files >= 0, demand.files,
          " files; there must be 0 or more");
  require(std::isfinite(demand.margin) && demand.margin >= 1, "a margin of ", demand.margin,
          "; it must be 1 or more");
  require(!demand.nic_mbps || positive(*demand.nic_mbps), "a network of ",
          demand.nic_mbps.value_or(0), " MB/s; it must carry something");
}

double client_hit_share(const StorageDemand& demand, Ownership ownership) {
  const double caches = ownership == Ownership::sticky_host ? demand.hosts : 1;
  return std::min(1.0, caches * demand.cache_bytes / demand.epoch_bytes);
}

double needed_mbps(const StorageDemand& demand, double hit_share) {
  return demand.epoch_bytes * (1 - hit_share) / demand.epoch_seconds / megabyte;
}

EpochEstimate epoch_estimate(const StorageDemand& demand, const FsxRates& rates, double hit_share,
                             bool warm) {
  const double bytes = demand.epoch_bytes * (1 - hit_share);
  EpochEstimate estimate;
  // Optimistic: the servers are taken to keep what they read first, not what they read last.
  if (warm && rates.memory_bytes && bytes > 0) {
    estimate.server_share = std::min(1.0, *rates.memory_bytes / bytes);
  }
  const double base = seconds_to_read(bytes, estimate.server_share, rates.memory, rates.disk);
  const double burst =
      seconds_to_read(bytes, estimate.server_share, rates.memory_burst, rates.disk_burst);
  estimate.seconds = std::max(demand.epoch_seconds, base);
  estimate.seconds_with_burst = std::max(demand.epoch_seconds, burst);
  constexpr double rounding = 1e-9;
  estimate.storage_limits = base > demand.epoch_seconds * (1 + rounding);
  return estimate;
}

std::vector<StorageChoice> storage_choices(const StorageDemand& demand) {
  check_demand(demand);
  // Sized for the first epoch: no cache helps it, and it is the one that people wait for.
  const double need = needed_mbps(demand, 0);
  std::vector<StorageChoice> choices;
  for (const FsxKind& kind : fsx_kinds()) {
    const FsxSystem system = fsx_for_rate(kind, need);
    const StorageVerdict verdict = judge_storage(demand, system);
    choices.push_back({.system = system,
                       .with_margin = fsx_for_rate(kind, demand.margin * need),
                       .rates = verdict.rates,
                       .first = verdict.first,
                       .later_any = verdict.later_any,
                       .later_sticky = verdict.later_sticky});
  }
  return choices;
}

StorageVerdict judge_storage(const StorageDemand& demand, const FsxSystem& system) {
  check_demand(demand);
  StorageVerdict verdict{.rates = fsx_rates(system)};
  const auto later = [&](Ownership ownership) {
    return epoch_estimate(demand, verdict.rates, client_hit_share(demand, ownership), true);
  };
  verdict.first = epoch_estimate(demand, verdict.rates, 0, false);
  verdict.later_any = later(Ownership::any_host);
  verdict.later_sticky = later(Ownership::sticky_host);
  verdict.hit_share_wanted = std::max(0.0, 1 - verdict.rates.disk / needed_mbps(demand, 0));
  verdict.sticky_cache_bytes_wanted = verdict.hit_share_wanted * demand.epoch_bytes / demand.hosts;
  return verdict;
}

MetadataDemand metadata_demand(const StorageDemand& demand, const FsxSystem* system) {
  MetadataDemand metadata;
  metadata.opens_per_second = demand.files / demand.epoch_seconds;
  constexpr double opens_of_an_operation = 2;
  metadata.iops = metadata.opens_per_second / opens_of_an_operation;
  if (system != nullptr) {
    metadata.given = fsx_metadata_iops(*system);
  }
  // Where AWS names no number, the least that PERSISTENT_2 has is a careful guess.
  constexpr double careful = 1500;
  const double limit = metadata.given ? static_cast<double>(*metadata.given) : careful;
  metadata.too_many = metadata.iops > limit;
  return metadata;
}

HostDemand host_demand(const StorageDemand& demand, const FsxRates* rates) {
  HostDemand host{.mbps = needed_mbps(demand, 0) / demand.hosts};
  if (rates != nullptr && !demand.efa) {
    host.flows_mbps = flow_mbps * rates->servers;
    host.above_flows = host.mbps > *host.flows_mbps;
  }
  // Where nobody says what the network carries, nothing is warned of.
  host.above_nic = demand.nic_mbps && host.mbps > *demand.nic_mbps;
  return host;
}

}  // namespace sprat::io
