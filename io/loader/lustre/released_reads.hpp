// Reads of released files wait in the scheduler until the files are back.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/loader/lustre/placement.hpp"
#include "io/loader/lustre/restorer.hpp"
#include "io/reading/scheduler.hpp"

namespace sprat::io {

/// How it stands with released files.
struct ReleasedState {
  std::uint64_t reads_held = 0;
  std::uint64_t restored_bytes = 0;  ///< Since the last state().
  std::uint64_t left_bytes = 0;
  std::string waits_for = {};  ///< A file that reads wait for; empty if none do.
};

/// The thread that fetches alone.
class ReleasedReads final {
 public:
  /// The scheduler outlives it.
  ReleasedReads(std::shared_ptr<Placement> placement, RestorerOptions restoring,
                Scheduler& scheduler);

  /// The samples before this position (FirstUse::position) are planned.
  void advance(std::uint64_t position);
  /// Where the file lies. If it is released its reads are held from now on.
  PlannedFile place(std::uint32_t file, std::uint32_t alignment, const Placement::Open& open);

  struct LostRead {
    std::uint64_t request = 0;
    std::exception_ptr error;  ///< Names the file, why, and what to do.
  };
  /// Reads of files that are back may start. Returns those that ended in the scheduler since their
  /// files are lost. Once a turn.
  std::vector<LostRead> settle();
  ReleasedState state();

 private:
  struct Awaited {
    std::uint64_t position = 0;         // of the first sample that wants it
    std::exception_ptr lost = nullptr;  // null while it may come back
  };

  const std::shared_ptr<Placement> placement_;
  const std::shared_ptr<const FileTable> files_;
  Scheduler& scheduler_;
  std::uint64_t position_ = 0, restored_told_ = 0;
  std::map<std::uint32_t, Awaited> awaited_;  // by file
  Restorer restorer_;
};

}  // namespace sprat::io
