// What a loader finds out of Lustre before it starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/capacity/fsx.hpp"
#include "io/loader/file_table.hpp"
#include "io/loader/lustre/lustre_mounts.hpp"
#include "io/loader/lustre/placement.hpp"
#include "io/report/cause.hpp"

namespace sprat::io {

struct LustreFiles {
  std::shared_ptr<LustreMounts> mounts;
  std::shared_ptr<Placement> placement;
  std::string sentence;            ///< Of the first source's, or of the first that is on Lustre.
  std::uint64_t target_bytes = 0;  ///< That one target takes at once.
  std::optional<std::uint64_t> targets = {};  ///< As this host's client says.
  bool first_on_lustre = false;               ///< The table's first file is ...
  bool first_released = false;                ///< ... and a read of it would wait for the archive.

  /// Where reads go, and what is not known, with the reason. Any thread.
  std::string describe() const;
  /// `facts` with what was learned of files since. Any thread.
  StorageFacts facts(StorageFacts facts) const;
};

/// Null where no source's first file is on Lustre: those are all that are opened. `declared`: what
/// the user says of the file system.
std::shared_ptr<const LustreFiles> find_lustre(std::shared_ptr<const FsProbe> probe,
                                               std::shared_ptr<const FileTable> files,
                                               const std::optional<FsxSystem>& declared);

}  // namespace sprat::io
