// `sprat io cache`: what lies in a loader's cache folder, and how it is emptied.
#pragma once

#include <string>

#include "cli/command.hpp"

namespace sprat::cli {

inline constexpr const char* io_cache_summary = "Show, check or clear the cache folder of a loader";
inline constexpr const char* io_cache_lesson =
    R"(A loader with the option cache.folder keeps on a local disk what it has read, in blocks of 1 MiB, for the next
epochs and runs. The processes of a host share a folder. Blocks are checked whenever they are read, so a
damaged one costs a read of the file system and nothing else.

Examples:
  sprat io cache /local/cache             how much of what is kept there?
  sprat io cache /local/cache --check     are all blocks as they were written? Reads them all.
  sprat io cache /local/cache --clear     free the disk. Refused while a loader uses it.
)";
/// Adds the options to `app`. The Action is called after parsing.
Action prepare_io_cache(CLI::App& app);

struct IoCacheRequest {
  std::string folder = {};
  bool check = false, clear = false, as_json = false;
};
struct IoCacheAnswer {
  std::string text = {};  ///< For people, or JSON; ends in a newline.
  bool damaged = false;
};
/// Does it. Throws Error where there is no cache, or it is in use and to be cleared.
IoCacheAnswer answer_io_cache(const IoCacheRequest& request);

}  // namespace sprat::cli
