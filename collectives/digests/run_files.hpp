// The files that runs left in folders.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/digests/comparison.hpp"

namespace sprat::collectives::digests {

/// A file's bytes, mapped and not read: digests of long runs are large, and a comparison looks at
/// most of them one time.
class MappedFile final {
 public:
  /// Throws Error{unavailable}.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// One job's, of all its ranks.
struct LoadedJob {
  std::string name;  ///< "sprat-4711-0a1b2c3d".
  std::string folder;
  int size = 0;
  std::vector<std::unique_ptr<MappedFile>> mapped;
  std::vector<std::unique_ptr<DigestFile>> ranks;  ///< Null where there is none.
  std::vector<std::string> unreadable;             ///< Sentences of files that are no such files.

  /// What is compared, shown to people under the name `shown`. Borrows from this job.
  JobFiles files(const std::string& shown) const;
  /// Values that the rank kept of a call; null if there are none.
  std::unique_ptr<MappedFile> values(int rank, const Call& call, Side side) const;
};

/// The jobs of a run, in the order in which they began: one, or one more each time that a job
/// shrank. `run` is a folder, or a folder and a job's name in it. Throws Error{unavailable} if
/// there is nothing to read.
std::vector<LoadedJob> load_run(const std::string& run);

}  // namespace sprat::collectives::digests
