// What training asks of storage, and whether a file system gives it: the rules as pure functions.
// MB is 1e6 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/capacity/fsx.hpp"

namespace sprat::io {

/// Who reads which sample in later epochs.
enum class Ownership : std::uint8_t {
  any_host,     ///< A shuffle over all hosts: what a host cached helps if the sample comes back.
  sticky_host,  ///< A host keeps its samples, or hosts serve each other: all caches count as one.
};

struct StorageDemand {
  double epoch_bytes = 0;
  double epoch_seconds = 0;  ///< That computing takes.
  int hosts = 1;
  double cache_bytes = 0;               ///< Of each host: page cache, or a local disk.
  double files = 0;                     ///< Opened in an epoch; 0: few.
  double margin = 1.2;                  ///< On top of what is needed.
  std::optional<double> nic_mbps = {};  ///< Of a host.
  bool efa = false;                     ///< Flows of EFA are not bound to 5 Gbit/s.
};
/// Throws Error{invalid_argument} naming the value that makes no sense.
void check_demand(const StorageDemand& demand);

/// The share of bytes that clients' caches give in later epochs; in the first one it is 0.
double client_hit_share(const StorageDemand& demand, Ownership ownership);
/// What must come from the file system, without the margin.
double needed_mbps(const StorageDemand& demand, double hit_share);

/// How long an epoch takes from a system that serves only it.
struct EpochEstimate {
  double server_share = 0;  ///< Of what is read: from the servers' memory.
  double seconds = 0, seconds_with_burst = 0;
  bool storage_limits = false;  ///< It takes longer than computing does, without burst.
};
/// `warm`: an epoch after the first. In the first one the servers' memory holds nothing.
EpochEstimate epoch_estimate(const StorageDemand& demand, const FsxRates& rates, double hit_share,
                             bool warm);

/// A kind that feeds the first epoch, at its least capacity.
struct StorageChoice {
  FsxSystem system;
  FsxSystem with_margin;
  FsxRates rates;
  EpochEstimate first, later_any, later_sticky;
};
/// One for each kind, in the table's order.
std::vector<StorageChoice> storage_choices(const StorageDemand& demand);

/// What a given system does.
struct StorageVerdict {
  FsxRates rates = {};
  EpochEstimate first = {}, later_any = {}, later_sticky = {};
  /// The share that clients' caches would have to give so that the base rate suffices; 0 if it
  /// does.
  double hit_share_wanted = 0;
  /// The bytes of cache on each host that give it, if samples stay with hosts.
  double sticky_cache_bytes_wanted = 0;
};
StorageVerdict judge_storage(const StorageDemand& demand, const FsxSystem& system);

struct MetadataDemand {
  double opens_per_second = 0;
  double iops = 0;                     ///< An operation of metadata is two opens or closes.
  std::optional<std::uint64_t> given;  ///< With the system's capacity; empty if unknown.
  bool too_many = false;
};
MetadataDemand metadata_demand(const StorageDemand& demand, const FsxSystem* system);

/// A host's own limits.
struct HostDemand {
  double mbps = 0;  ///< Its part of the first epoch's need.
  /// From 5 Gbit/s for each server that it reads from at once; empty with EFA or without a system.
  std::optional<double> flows_mbps = {};
  bool above_flows = false, above_nic = false;
};
HostDemand host_demand(const StorageDemand& demand, const FsxRates* rates);

/// 5 Gbit/s: what one TCP flow between a client and a server carries on EC2.
inline constexpr double flow_mbps = 625;

}  // namespace sprat::io
