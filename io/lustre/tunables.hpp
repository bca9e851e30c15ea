// How the Lustre client of this host is set, and what to type where that is less than it could be.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/lustre/fs_probe.hpp"

namespace sprat::io {

/// A setting, of as many devices as have it.
struct Tunable {
  std::string_view name;  ///< As lctl names it: "osc.*.max_rpcs_in_flight".
  std::size_t devices = 0;
  std::uint64_t least = 0, most = 0;  ///< Of all devices; equal as a rule.
};
struct ClientSettings {
  std::string version;                   ///< Of the client; empty if it does not tell.
  std::vector<Tunable> tunables;         ///< Those that could be read.
  std::vector<std::string_view> unread;  ///< Those that could not; defaults are taken for them.

  const Tunable* find(std::string_view name) const;
};
/// Looks below the probe's sysfs root.
ClientSettings read_client_settings(const FsProbe& probe);

struct HostSize {
  int cores = 0;
  std::uint64_t memory_bytes = 0;
};
struct ClientAdvice {
  std::string found;
  std::string command;  ///< To type as root.
};
/// Pure. AWS's settings for large clients, and known faults.
std::vector<ClientAdvice> client_advice(const ClientSettings& settings, const HostSize& host);

/// Bytes that one OST takes at once; more only waits in the client.
std::uint64_t target_cap_bytes(const ClientSettings& settings);

}  // namespace sprat::io
