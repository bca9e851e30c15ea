// Files that others may read at any moment, and that are no use in part.
#pragma once

#include <string>
#include <string_view>

namespace sprat {

/// Writes the file whole, or throws Error{unavailable} that begins with the path and leaves what
/// was there: nobody reads half of it, and no two writers mix. A device, a pipe or a link, as
/// /dev/stdout is one, is written into and not replaced.
void write_whole_file(const std::string& path, std::string_view content);

}  // namespace sprat
