// Saves a model's state as a checkpoint, while training goes on.
//
// save() brings rows together, takes a snapshot and starts a thread that writes this rank's files;
// no collective runs there. poll() asks whether all ranks are done, and then commits: rank 0
// writes the manifest and gives the folder its name. Whatever goes wrong before that leaves the
// last checkpoint as it is. What is old then goes on a thread of rank 0's, since it may take long.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/plan/save_plan.hpp"
#include "checkpoint/rows.hpp"
#include "fsdp/model_state.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

struct SaverOptions {
  std::string folder;  ///< The same on every rank, on a file system that all share.
  int keep_last = 2;
  bool asynchronous = true;
  io::StepHook hook;
};

/// Its calls are collective and of one thread. Errors are the same on every rank.
class Saver {
 public:
  /// `world` and `held` outlive it.
  Saver(Communicator& world, const ModelState& held, SaverOptions options);
  /// Drops a save that is under way: wait() first.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// What a save needs, tried with a file of one byte: makes the folder, takes its lock, and writes
  /// from every rank that is to write.
  void prepare();
  /// Starts a checkpoint of the values as they are now; `about` has no contents yet. Waits for the
  /// one before it.
  void save(Manifest about);
  /// The same, and removes no other checkpoint.
  void save_beside(Manifest about);
  /// Commits the save that is under way, if every rank has written its files.
  void poll();
  /// Returns once no save is under way.
  void wait();

 private:
  class Writing;
  class Removing;

  void start(Manifest about, int keep_last);
  void open_folder(std::uint64_t id);
  void start_writing();
  /// Collective: what another rank still wrote would be left.
  void drop_once_all_have_stopped() noexcept;
  void drop_unfinished() noexcept;
  void commit();
  void remove_old() noexcept;
  std::vector<std::uint64_t> gather_checksums(const std::vector<io::FileRecord>& mine);
  void publish(std::vector<std::uint64_t> checksums);
  std::string unfinished_name() const;

  Communicator& world_;
  const ModelState& held_;
  SaverOptions options_;
  std::vector<SavedFile> plan_;  // what this rank has a part in
  std::vector<int> writers_;     // by file; on rank 0, as the next
  Contents contents_;
  std::optional<FolderLock> lock_;  // on rank 0
  Manifest about_;                  // of the save under way, as the rest
  int keep_last_ = 0;
  std::uint64_t id_ = 0;
  std::vector<float> snapshot_;
  GatheredRows rows_;
  std::unique_ptr<Writing> writing_;
  std::unique_ptr<Removing> removing_;  // on rank 0
};

}  // namespace sprat::fsdp
