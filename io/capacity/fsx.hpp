// Amazon FSx for Lustre as its user guide describes it: kinds, what they give for each TiB, and in
// which steps they come.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sprat::io {

/// Rates are MB/s (1e6 bytes) for each TiB of storage, for reads.
struct FsxKind {
  std::string_view deployment;   ///< "PERSISTENT_2", as the API names it.
  int mbps_per_tib = 0;          ///< The tier; of INTELLIGENT_TIERING its steps in MB/s.
  bool disks_turn = false;       ///< HDD.
  bool ssd_cache = false;        ///< HDD with an SSD cache of 20 %.
  double network = 0, disk = 0;  ///< Base.
  std::optional<double> network_burst = {}, disk_burst = {};
  bool burst_differs_by_region = false;        ///< Some regions have 530 MB/s for each TiB at most.
  std::optional<double> ram_gib_per_tib = {};  ///< Cache of the file servers; unpublished if empty.
  std::uint64_t first_gib = 0;  ///< The smallest; some have a second one below step_gib.
  std::uint64_t second_gib = 0;
  std::uint64_t step_gib = 0;        ///< All others are multiples.
  std::uint64_t gib_per_server = 0;  ///< Not published; from what people see.

  friend bool operator==(const FsxKind&, const FsxKind&) = default;
};

/// In the order of the user guide.
std::span<const FsxKind> fsx_kinds();
/// "PERSISTENT_2-250", "PERSISTENT_1-12 HDD + SSD cache".
std::string fsx_kind_text(const FsxKind& kind);

/// A file system: a kind and how much of it.
struct FsxSystem {
  const FsxKind* kind = nullptr;
  std::uint64_t gib = 0;   ///< StorageCapacity; 0 of INTELLIGENT_TIERING, which grows.
  std::uint64_t mbps = 0;  ///< ThroughputCapacity, of INTELLIGENT_TIERING alone.

  friend bool operator==(const FsxSystem&, const FsxSystem&) = default;
};
/// "PERSISTENT_2:250:12000", "PERSISTENT_1:12+cache:6000", "INTELLIGENT_TIERING:8000". Throws
/// Error{invalid_argument} with what there is.
FsxSystem parse_fsx(std::string_view text);
/// What parse_fsx() takes.
std::string fsx_option(const FsxSystem& system);
/// "PERSISTENT_2-250 of 12.0 TiB".
std::string fsx_text(const FsxSystem& system);

/// The least capacity in its steps that holds `gib`; at least the smallest there is.
std::uint64_t fsx_capacity(const FsxKind& kind, double gib);
/// The least system of a kind whose uncached reads reach `mbps` without burst.
FsxSystem fsx_for_rate(const FsxKind& kind, double mbps);

/// What a system gives to reads. MB/s.
struct FsxRates {
  double disk = 0, disk_burst = 0;          ///< Of what no cache holds: network or disk, the less.
  double memory = 0, memory_burst = 0;      ///< Of what the servers' memory holds: the network.
  std::optional<double> memory_bytes = {};  ///< Of all servers together.
  double servers = 0;                       ///< An estimate.
};
FsxRates fsx_rates(const FsxSystem& system);

/// Metadata operations a second that come with a capacity (mode AUTOMATIC of PERSISTENT_2); empty
/// where AWS names none.
std::optional<std::uint64_t> fsx_metadata_iops(const FsxSystem& system);

}  // namespace sprat::io
