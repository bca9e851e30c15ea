// What may limit a loader: a table of causes, one file each in causes/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/capacity/fsx.hpp"
#include "io/report/window.hpp"

namespace sprat::io {

enum class Limit : std::uint8_t {
  failover,     ///< A server failed over, or threw this client out.
  released,     ///< First touch of files that are in S3.
  reductions,   ///< Preprocessing takes the cores that reductions want.
  short_reads,  ///< Storage gives less than it was asked for.
  metadata,     ///< Opens.
  hot_target,   ///< Few targets carry most.
  network,      ///< This host's link.
  decode,       ///< A stage of decoding.
  budget,       ///< The memory that the loader may use.
  burst_spent,  ///< Throughput fell to the base that was paid for.
  file_system,  ///< Its throughput.
  loader,       ///< Too little is asked for at once.
  compute,      ///< Nothing of the above: samples wait for whoever computes.
  unknown,      ///< Samples are waited for, and nothing of the above is seen.
};
/// "failover", "hot_target": in reports.
std::string_view name(Limit limit) noexcept;

/// What is known beside what is observed.
struct StorageFacts {
  std::string about = {};                ///< "Lustre (FSx assumed: no)"; for sentences.
  std::optional<FsxSystem> system = {};  ///< As the user says.
  std::optional<double> metadata_iops = {};
  int hosts = 1;  ///< That read from it as this one does; of a loader, its ranks.
  std::optional<std::uint64_t> targets = {};  ///< That it has.
  double mean_file_bytes = 0;
  /// A file that lies on one target alone, of targets that have some.
  std::map<Target, std::string> lone_files = {};
};

/// What earlier windows showed. Rates are MB/s.
struct Past {
  double peak_mbps = 0;     ///< The best that storage gave in two windows with full queues.
  double peak_seconds = 0;  ///< For how long it gave nearly that.
  /// Seconds that reductions took for a byte while cores were left, the least.
  std::optional<double> reduction_seconds_per_byte;
};

struct Cause {
  Limit limit = Limit::unknown;
  std::string sentence;  ///< With its figures.
  std::string remedy;    ///< What would lift it; empty if nothing need be.
};

struct CauseKind {
  Limit limit;
  std::string_view name;  ///< Its file in causes/.
  bool only_waiting;      ///< Looked for only while samples are waited for.
  bool only_alone;        ///< Counts only if no cause above it in the table was found.
  int windows_to_begin;   ///< In a row, until it is said.
  /// Empty if the window does not show it.
  std::optional<Cause> (*find)(const ObservedWindow& window, const Past& past,
                               const StorageFacts& facts);
};

/// In the order in which they are named, the most urgent first.
std::span<const CauseKind* const> cause_kinds();

/// The base rate of this loader's share of the file system, in MB/s, if the window gives that after
/// it gave clearly more: what happens when burst credit is spent. Of the disks, or of the servers'
/// memory, whichever it is near. Empty without a system that the user has told.
std::optional<double> base_after_burst(const ObservedWindow& window, const Past& past,
                                       const StorageFacts& facts);

/// Samples are waited for so long that something but computing is the limit.
inline constexpr double little_wait = 0.02;
/// "12.3", "1,234": three digits that count, for sentences.
std::string figure(double value);
/// "3.2 ms".
std::string time_figure(double seconds);

}  // namespace sprat::io
