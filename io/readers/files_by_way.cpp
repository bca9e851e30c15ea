// Long reads have a choice where the page cache lacks some of what they want.
#include "io/readers/files_by_way.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "io/readers/cached_read.hpp"

namespace sprat::io {
namespace {

/// Shorter reads stay with the page cache: past it each takes as long as a disk turns to answer.
constexpr std::uint64_t least_bypass_bytes = std::uint64_t{256} << 10;
/// Descriptors for direct reads, beside the others: opened again at little cost on a local disk.
constexpr std::size_t most_direct_files = 256;

}  // namespace

FilesByWay::FilesByWay(const FilesByWayOptions& options)
    : bytes_(options.bytes),
      may_bypass_(options.may_bypass),
      usual_(options.known,
             // Pages that the kernel is still reading ahead look like cached ones, and would
             // hide how much a way brings. So many long reads are ahead enough.
             {.direct = options.direct,
              .nothing_ahead = options.may_bypass,
              .look_again = options.look_again}),
      direct_(options.known,
              {.most = most_direct_files, .direct = true, .look_again = options.look_again}) {}

FilesByWay::Chosen FilesByWay::choose(const Extent& extent, OpenFiles::Opened opened) {
  Chosen chosen{.opened = std::move(opened)};
  if (chosen.opened.error != 0 || !has_choice(extent, *chosen.opened.file)) {
    return chosen;
  }
  chosen.way = bypass_.next();
  if (*chosen.way == CacheBypass::Way::past) {
    if (OpenFiles::Opened direct = direct_.open(extent.file); direct.error == 0) {
      chosen.opened = std::move(direct);
    } else {
      bypass_.refuse();
      chosen.way = CacheBypass::Way::through;
    }
  }
  return chosen;
}

void FilesByWay::drop(std::uint32_t file) {
  usual_.drop(file);
  direct_.drop(file);
}

bool FilesByWay::has_choice(const Extent& extent, const OpenFile& file) const {
  if (!may_bypass_ || bypass_.refused() || extent.bytes < least_bypass_bytes) {
    return false;
  }
  const std::uint64_t bytes = std::min(extent.bytes, bytes_(extent.file) - extent.offset);
  // Where the kernel does not tell of a file, it stays with the cache, too.
  return !lies_in_cache(file.descriptor(), extent.offset, bytes).value_or(true);
}

}  // namespace sprat::io
