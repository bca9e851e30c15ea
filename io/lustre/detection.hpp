// What a file system is: Lustre or not, FSx or not, and how that is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/capacity/fsx.hpp"
#include "io/lustre/fs_probe.hpp"
#include "io/reading/request.hpp"

namespace sprat::io {

inline constexpr std::uint32_t lustre_magic = 0x0BD00BD0;

/// A line of /proc/self/mountinfo.
struct Mount {
  std::string point, type, source;
};
/// In their order; lines that cannot be read are left out.
std::vector<Mount> parse_mountinfo(std::string_view text);
/// The mount that holds `path`, which is absolute and without links; null if none does.
const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path);

/// "fs-0123456789abcdef0" of a source that names an FSx file system; empty of any other. A file
/// system that was mounted by its address cannot be told from another Lustre.
std::string fsx_id_of(std::string_view source);

struct StorageFound {
  enum class Fsx : std::uint8_t { no, by_name, by_option };
  bool lustre = false;
  Fsx fsx = Fsx::no;
  std::optional<FsxSystem> declared;  ///< As the user says.
  std::string mount_point, source;    ///< Empty if mountinfo does not tell.
  std::string sentence;               ///< "Lustre (FSx assumed: no), ...", for reports.
};

/// What lies at `path`. `declared`: what the user says of it.
StorageFound detect_storage(const FileSystemStatus& status, std::string_view mountinfo,
                            std::string_view path, const std::optional<FsxSystem>& declared);

/// What Lustre tells of one open file.
struct LustreFile {
  FileLayout layout = {};
  bool released = false;
  std::string unknown_because = {};  ///< Why the layout is not known; empty if it is.
};

struct FileSize {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;  ///< stat's st_blocks; 0 of a file with bytes hints at a released one.
};
/// Asks for the layout, and for the HSM state where blocks hint at a released file. Never throws
/// for what a file system answers. `unknown`: the target of bytes of which nothing is known.
LustreFile examine_lustre_file(const FsProbe& probe, int descriptor, const FileSize& size,
                               Target unknown);

}  // namespace sprat::io
