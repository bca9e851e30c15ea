// Where the bytes of a loader's files lie: their layouts on Lustre, asked for as files are met.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/loader/file_table.hpp"
#include "io/loader/lustre/lustre_mounts.hpp"
#include "io/readers/open_files.hpp"
#include "io/reading/plan.hpp"

namespace sprat::io {

/// Targets of several file systems under one numbering. Those of the first one have the numbers
/// that lfs gives them; the metadata server is -1.
Target placed_target(int mount, Target target);
/// Of all bytes of a source's files of which nobody knows where they lie.
Target unplaced_target(std::uint32_t source);

/// How much was found out, for people.
struct PlacementNotes {
  std::uint64_t known = 0, released = 0, unknown = 0;  ///< Files, each time that they were asked.
  std::string unknown_file, unknown_because;           ///< The first one.
  std::set<Target> targets;
  std::map<Target, std::string> lone_files;  ///< A file that lies on one target alone, of each.
};

/// A layout is asked for when its file is first planned, of the descriptor that the file's first
/// read will use: not one open more, and none at all of files that are not met. A bounded memory
/// keeps those that were used last. One thread at a time, but for notes().
class Placement final {
 public:
  using Open = std::function<OpenFiles::Opened(std::uint32_t file)>;

  /// `on_lustre`: of each source, whether its files are asked.
  Placement(std::shared_ptr<const FileTable> files, std::shared_ptr<LustreMounts> mounts,
            std::vector<bool> on_lustre, std::size_t memory_bytes = std::size_t{16} << 20);

  struct Placed {
    PlannedFile file;       ///< Its layout is there until the next call.
    bool released = false;  ///< As it was when it was asked.
  };
  /// alignment: of direct reads, or 1. `open` may be called once. What cannot be asked lies on one
  /// target.
  Placed place(std::uint32_t file, std::uint32_t alignment, const Open& open);
  /// It is to be asked anew: it was released, and is back.
  void forget(std::uint32_t file);
  /// Any thread.
  PlacementNotes notes() const;

 private:
  struct KnownLayout {
    std::uint32_t file = 0;
    bool released = false;
    FileLayout layout = {};
    std::size_t bytes = 0;
  };
  using Recent = std::list<KnownLayout>;

  const KnownLayout* find(std::uint32_t file);
  /// Null if it cannot be asked now.
  const KnownLayout* ask(std::uint32_t file, const Open& open);
  void note(const KnownLayout& entry, const std::string& unknown_because);

  const std::shared_ptr<const FileTable> files_;
  const std::shared_ptr<LustreMounts> mounts_;
  const std::vector<bool> on_lustre_;
  const std::size_t memory_bytes_;
  Recent recent_;  // the last used first
  std::unordered_map<std::uint32_t, Recent::iterator> by_file_;
  std::size_t bytes_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  PlacementNotes notes_;
};

}  // namespace sprat::io
