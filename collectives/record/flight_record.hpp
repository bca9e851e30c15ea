// What one rank did last, as a value: read from a status page, or from the JSON that a rank left
// when its job failed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/status/status_search.hpp"

namespace sprat::collectives {

/// How far a call is.
enum class CallState { queued, running, done, failed };

/// A collective operation. Times are seconds on the host's own clock; 0: not yet.
struct RecordedOperation {
  std::uint64_t sequence = 0;
  std::string call;       ///< "all_reduce of 1024 f32, sum".
  std::string signature;  ///< Hexadecimal; equal on every rank if the calls agree.
  std::uint64_t bytes = 0;
  std::string algorithm;
  CallState state = CallState::queued;
  double posted = 0, started = 0, ended = 0;
  std::vector<int> late;       ///< World ranks known not to have called it.
  std::vector<int> waits_for;  ///< World ranks that have, and that it waits for all the same.
};

struct RecordedMessage {
  bool sends = false;
  int peer = 0;  ///< Rank of the communicator; -1: any.
  int tag = 0;
  std::uint64_t bytes = 0;
  CallState state = CallState::running;
  double posted = 0, ended = 0;
};

struct RecordedCommunicator {
  std::uint64_t id = 0;
  std::string name;
  int rank = 0, size = 0;
  std::vector<int> world_ranks;  ///< The first ones, if there are very many.
  std::uint64_t posted = 0, ended = 0;
  std::vector<RecordedOperation> operations;  ///< Ascending.
  std::vector<RecordedMessage> messages;      ///< In the order of the calls.
};

/// What a rank has done of one kind since it joined.
struct RecordedTotal {
  std::string operation;  ///< "all_reduce", "send", "recv".
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  ///< Of callers' larger buffers.
};

struct FlightRecord {
  std::int64_t pid = 0;
  int rank = 0, size = 0;
  int hosts = 0;  ///< Of the job; 0: not known, in files of older versions.
  std::string host;
  std::string job;      ///< The same on every rank of a job, and on no other's.
  std::string failure;  ///< Empty while the job is well.
  /// Threads in a wait. If there is none, the program computes, or tests now and then.
  std::int64_t waiting_threads = 0;
  double waited = 0;                  ///< Seconds that its threads have waited, all together.
  double started = 0;                 ///< When it joined; on the clock of the times above.
  std::vector<RecordedTotal> totals;  ///< Of what it has called at least once.
  double taken = 0;                   ///< When this was read; on the clock of the times above.
  double unix_offset = 0;             ///< Add it to a time for seconds since 1970.
  std::vector<RecordedCommunicator> communicators;
  std::uint64_t unlisted = 0;  ///< Communicators that the page had no room for.
};

const char* name(CallState state) noexcept;

/// Nothing unless `page`, 8-byte aligned, is a status page of this build's layout. Believes no
/// byte.
std::optional<FlightRecord> read_flight_record(std::span<const std::byte> page, double now);

/// The pages of a process, kept open: they are read as often as one likes, also once it has ended.
class ShownRanks {
 public:
  /// Throws Error{unavailable} if its descriptors cannot be seen.
  explicit ShownRanks(pid_t pid);
  /// One for each rank that the process is, ascending. Throws Error{unavailable} if another version
  /// wrote a page.
  std::vector<FlightRecord> read() const;

 private:
  pid_t pid_;
  std::vector<comm::status::Reader> pages_;
};

/// One for each rank that the process is, running, hung or stopped. Throws Error{unavailable}.
std::vector<FlightRecord> flight_records_of(pid_t pid);
/// The processes of this user that have one.
std::vector<pid_t> processes_with_flight_records();

/// docs/failure.md says what it holds.
std::string to_json(const FlightRecord& record);
/// Throws Error{invalid_argument}.
FlightRecord flight_record_from_json(std::string_view json);
/// Throws Error{unavailable, invalid_argument}.
FlightRecord read_flight_record_file(const std::string& path);

}  // namespace sprat::collectives
