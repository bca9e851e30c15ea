// Everything that can be set from outside, as plain data.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "sprat/export.hpp"
#include "sprat/reduction.hpp"

namespace sprat {

/// Ports from first to last, both included; 0 to 0 is any.
struct PortRange {
  int first = 0, last = 0;
  bool any() const { return first == 0; }
};

/// Digests of what calls give, for `sprat diff` (docs/diff.md).
struct DigestConfig {
  std::string folder;   ///< SPRAT_DIGESTS: where ranks keep them; empty: nowhere.
  bool inputs = false;  ///< SPRAT_DIGESTS_INPUTS: also of what went into a call.
  int check = 0;        ///< SPRAT_DIGESTS_CHECK, steps: how often replicas are compared; 0: never.
  std::string keep;     ///< SPRAT_DIGESTS_KEEP: a call whose values are kept.
};

/// A timeout that is longer is this: a hundred years.
inline constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365 * 100);

/// How a job is joined and run. Every field has a line in docs/configuration.md.
struct Config {
  int rank = -1;           ///< SPRAT_RANK; -1: ask the launcher.
  int size = -1;           ///< SPRAT_SIZE; -1: ask the launcher.
  std::string rendezvous;  ///< SPRAT_RENDEZVOUS: tcp://host:port or file://path; empty: ask.
  std::string host;        ///< SPRAT_HOST: name of this rank's host, or a comma list by rank.
  std::string interface;   ///< SPRAT_INTERFACE: network interfaces, comma list; ^ excludes.
  PortRange ports;         ///< SPRAT_PORTS: "first-last", all that Sprat listens on.
  std::string provider;    ///< SPRAT_PROVIDER; empty: efa by libfabric, else sockets.
  std::string topology;    ///< SPRAT_TOPOLOGY: hwloc XML that replaces detection.
  std::string algorithm;   ///< SPRAT_ALGORITHM: rules put before all others.
  std::string tuning;      ///< SPRAT_TUNING: file of rules put before ours, as bench writes it.
  ReduceOrder order = ReduceOrder::canonical;  ///< SPRAT_ORDER: of reductions; canonical or any.
  std::string token;                           ///< SPRAT_TOKEN: the job's shared secret.
  bool encrypt = false;            ///< SPRAT_ENCRYPT: between processes only TLS, by the token.
  std::string log_level = "warn";  ///< SPRAT_LOG: trace, debug, info, warn, error, off.
  std::chrono::milliseconds join_timeout{60'000};  ///< SPRAT_JOIN_TIMEOUT, seconds.
  std::chrono::milliseconds timeout{1'800'000};    ///< SPRAT_TIMEOUT, seconds, of one operation.
  std::size_t staging_bytes =
      4 << 20;               ///< SPRAT_STAGING: shared bytes a communicator stages through.
  bool cross_memory = true;  ///< SPRAT_CROSS_MEMORY: processes of a host read each other's memory.
  std::chrono::milliseconds straggler_after{30'000};  ///< SPRAT_STRAGGLER_AFTER, seconds; 0: never.
  std::string flight_recorder;  ///< SPRAT_FLIGHT_RECORDER: folder for what ranks did last.
  DigestConfig digests;
  std::string trace;        ///< SPRAT_TRACE: file for a timeline of all ranks; empty: none.
  std::string fake_lustre;  ///< SPRAT_FAKE_LUSTRE: folder taken for a mount of Lustre; for tests.

  /// Reads the environment; throws Error{invalid_argument} naming the variable and its value.
  static SPRAT_API Config from_environment();
};

/// One field for people: what it is, what it is now, and who set it.
struct ConfigField {
  std::string name, variable, unit, default_value, value, origin, help;
};
SPRAT_API std::vector<ConfigField> describe(const Config& config);

}  // namespace sprat
