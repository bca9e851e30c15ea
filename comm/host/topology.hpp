// What this host is made of, and which host it is.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/blob.hpp"
#include "sprat/config.hpp"

namespace sprat::comm {

/// A physical core. Indices are positions in Topology's vectors, except `pus`.
struct Core {
  int package = 0;
  int numa = 0;
  std::vector<int> pus;          ///< Hardware threads, by the operating system's number.
  std::vector<int> allowed_pus;  ///< Those of them that this process may run on.
  bool operator==(const Core&) const = default;
};

struct NumaNode {
  int package = 0;
  std::size_t memory_bytes = 0;
  bool operator==(const NumaNode&) const = default;
};

struct Package {
  std::string model;  ///< "Intel(R) Xeon(R) …", or empty.
  bool operator==(const Package&) const = default;
};

/// All caches of one level that hold data.
struct Cache {
  int level = 0;
  int count = 0;
  std::size_t bytes = 0;  ///< Of one.
  bool operator==(const Cache&) const = default;
};

struct Device {
  enum class Kind { nic, fabric, gpu };  ///< fabric: a NIC's address past the kernel (verbs, efa).
  Kind kind = Kind::nic;
  std::string name;   ///< "eth0", "rdmap0s6", "cuda0", or the PCI address.
  std::string model;  ///< Its name, or PCI vendor and device: "10de:20b0"; or empty.
  std::string pci;    ///< "0000:10:1c.0", or empty.
  int numa = -1;      ///< The nearest NUMA node; -1: none is nearer than others.
  /// PCI buses from the host's bridge to the device: the longer the common beginning of two
  /// devices' paths, the closer they are.
  std::vector<std::string> buses;
  bool operator==(const Device&) const = default;
};
const char* name(Device::Kind kind) noexcept;

struct Topology {
  std::vector<Package> packages;
  std::vector<NumaNode> numa_nodes;
  std::vector<Core> cores;
  std::vector<Cache> caches;  ///< Level 1 first.
  std::vector<Device> devices;
  bool operator==(const Topology&) const = default;

  /// Cores with at least one hardware thread that this process may run on.
  int allowed_cores() const;
  int allowed_pus() const;
  std::size_t memory_bytes() const;
  /// Of one cache of this level; 0 if there is none.
  std::size_t cache_bytes(int level) const;
};

/// Pure: from hwloc's XML (`lstopo x.xml`). Throws Error{invalid_argument} if it is not that.
Topology parse_topology(std::string_view xml);
/// This host with this process's affinity, or what config.topology says instead.
/// Throws Error{unavailable} if it cannot be read.
Topology read_topology(const Config& config);

/// For telling other ranks. from_blob throws Error{invalid_argument}.
Blob to_blob(const Topology& topology);
Topology topology_from_blob(std::span<const std::byte> blob);

/// Who this rank's host is.
struct HostIdentity {
  /// Ranks of different labels never share memory; ranks of one label may, if a probe succeeds.
  std::string label;
  /// One kernel and one space of process ids, whatever SPRAT_HOST says.
  std::string machine;
  std::string name;  ///< For people.
  /// Of machine and label: not 0, and of different ones very likely different.
  std::uint64_t number() const;
};

/// Pure: what config.host names `rank`'s host; empty if it says nothing.
/// Throws Error{invalid_argument} if it is a list that ends before `rank`.
std::string named_host(std::string_view hosts, int rank);
/// Throws Error{unavailable} if /proc is not there.
HostIdentity host_identity(const Config& config, int rank);

}  // namespace sprat::comm
