// Which files a dataset has: what users name, as paths.
#pragma once

#include <string>
#include <vector>

#include "io/formats/format.hpp"

namespace sprat::io {

/// What paths lead to. Paths are absolute, without "." and "..", and links are not followed in
/// them.
struct FoundFiles {
  std::vector<std::string> named;       ///< By a path or a pattern: taken whatever their endings.
  std::vector<std::string> in_folders;  ///< All files of folders but hidden ones.
  std::vector<std::string> folders;     ///< That were named.
};

/// `paths` are files, folders (not those inside of them), or patterns with * and ?. Throws
/// Error{unavailable} naming what is not there, and patterns that meet nothing.
FoundFiles find_files(const std::vector<std::string>& paths);

/// Whether folders have files of that format.
bool has_files_of(const Format& format, const FoundFiles& found);
/// Those of one format, sorted, each once. Throws Error{unavailable} if there is none.
std::vector<std::string> files_of(const Format& format, const FoundFiles& found);

/// The file whose format all have: the first that is named, else the first whose ending some
/// format knows. Throws Error{unavailable} if there is none, or if folders have files of several
/// formats.
std::string typical_file(const FoundFiles& found);

/// An absolute path without "." and "..", and without a slash at its end.
std::string plain_path(const std::string& path);
/// The folder of a path that is a file or a pattern, the folder itself if it is one. Patterns count
/// up to the first * or ?.
std::string folder_of(const std::string& path);

}  // namespace sprat::io
