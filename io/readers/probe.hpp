// What can be done with files that lie where one of them lies: asked by trying.
#pragma once

#include <string>

#include "io/readers/reader.hpp"

namespace sprat::io {

/// Opens the file and reads a block of it in each way. Throws Error{unavailable} naming the file if
/// it cannot be opened or is none.
FileSystem probe_file_system(const std::string& path);
/// The same without a read, which would wait for a file that lies in an archive alone: direct reads
/// are taken to work where such an open does.
FileSystem probe_without_reading(const std::string& path);

/// "ext", "lustre" ..., by statfs's f_type; "other" if nobody has named it here.
std::string_view file_system_kind(std::uint32_t magic);

}  // namespace sprat::io
