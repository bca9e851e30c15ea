// The folder that holds checkpoints: what its entries are called, which is the latest, which go.
//
//   step-00001000/            a checkpoint: complete, since it got its name last
//   step-00002000.tmp-ID/     one being written, or what a save that died left
//   step-00002000.tmp-ID-replaced/   stands for step-00002000 while there is none: a save that died
//       between two renames, on a file system that cannot exchange names
//   latest -> step-00001000
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/fork.hpp"
#include "io/durable.hpp"

namespace sprat::fsdp {

/// Names of what is in a folder; none if there is no such folder, or it is a file. Throws
/// Error{unavailable} if it cannot be read.
std::vector<std::string> entries_of(const std::string& folder);

std::string step_name(std::int64_t step);
/// The step of an entry's name; nullopt if it is no checkpoint's.
std::optional<std::int64_t> step_of(const std::string& name);
/// Steps of the checkpoints in `folder`, ascending; none if there is no folder.
std::vector<std::int64_t> steps_in(const std::string& folder);

/// Where the latest checkpoint in `folder` lies: what `latest` points at. Without `latest` the
/// highest step; also if what it points at was removed, which is logged. Throws Error{unavailable}
/// if what it points at is there and is no checkpoint any more: nobody means an older one then.
std::optional<std::string> latest_in(const std::string& folder);
/// `path` itself if it is a checkpoint, or what it leads to if it is a link: a job may point that
/// at another one at any time. Else the latest one in it. Throws Error{unavailable} if there is
/// none.
std::string checkpoint_at(const std::string& path);

/// A checkpoint that is whole and on the disk, and has no name yet.
struct NamelessCheckpoint {
  std::string folder, unfinished;  ///< The second lies in the first.
  std::int64_t step = 0;
  std::uint64_t id = 0;  ///< The save's own.
};
/// Gives it its name and makes `latest` lead to it; returns once that is on the disk. A checkpoint
/// of the same step is `unfinished` then. If it throws, all names are what they were before.
void put_in_place(const NamelessCheckpoint& checkpoint, const io::StepHook& hook);

/// Takes the names of checkpoints before `step` beyond the `keep_last` - 1 highest, and returns
/// what is to be removed: these, which may take long, and what dead saves left. Checkpoints after
/// `step` stay: they are of a run that went further. What fails is logged: the save that calls this
/// has succeeded. `id` is the save's own.
std::vector<std::string> retire(const std::string& folder, std::int64_t step, int keep_last,
                                std::uint64_t id, const io::StepHook& hook) noexcept;

/// Without the slash it may end with, which would make a name inside it of one beside it.
std::string folder_name(const std::string& path);
/// Makes the folder and those above it that are missing, and brings their entries to the disk.
void make_durable_folder(const std::string& path, const io::StepHook& hook);

/// Keeps other jobs from saving into a folder; ends with the process at the latest, whatever
/// children it has forked.
class FolderLock {
 public:
  /// Throws Error{unavailable} if another job has it. File systems without locks have no guard.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  comm::ProcessMark mark_;
  int descriptor_ = -1;
};

}  // namespace sprat::fsdp
