// Two looks at this host's jobs become rows: rates, shares of time, and who keeps whom waiting.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/look.hpp"

namespace sprat::cli {

/// Of one kind of operation, a second.
struct OperationRate {
  std::string operation;
  double calls = 0, bytes = 0;
};

struct RankRow {
  int rank = 0;
  pid_t pid = 0;
  double calls = 0, bytes = 0;            ///< A second.
  std::vector<OperationRate> operations;  ///< The most bytes first, then the most calls.
  double waits = 0;  ///< Share of the time between the looks that threads waited, at most 1.
  double late = 0;   ///< Share of the looks between them in which others waited for it.
  double cpu = 0;    ///< Cores in use by its process, of which it may be one rank of several.
  std::uint64_t resident_bytes = 0;
  char state = '?';
  std::optional<ProcessGpus> gpus;
  std::string doing;  ///< "all_reduce of 4 f32, sum since 3.1 s, waits for rank 2"; may be empty.
};

struct JobRows {
  std::string job, command, user;
  int size = 0, hosts = 0;  ///< Of the whole job.
  double age = 0;           ///< Seconds since the first of its ranks here joined.
  std::string failure;      ///< Empty while the job is well.
  std::vector<RankRow> ranks;
  std::string straggler;  ///< A sentence of whom others wait for; empty if of nobody.
};

struct HostRows {
  bool has_gpus = false;
  std::vector<JobRows> jobs;  ///< In the order that the later look has them in.
  std::vector<std::string> unreadable;
};

enum class RankOrder { rank, waits, late, bytes, cpu };
const char* name(RankOrder order) noexcept;
std::vector<RankOrder> all_rank_orders();

/// A rank that only the later look has is measured since it joined, and the cores of a process that
/// only that one has since it was started.
HostRows rows_between(const HostLook& before, const HostLook& after);
/// The ranks of each job; the largest first, but for RankOrder::rank.
void sort_ranks(HostRows& rows, RankOrder order);
/// One JSON object, docs/watching.md says what is in it.
std::string to_json(const HostRows& rows);

}  // namespace sprat::cli
