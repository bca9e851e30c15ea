// One turn of a way to read: so many reads under way for so long, whatever comes is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "io/bench/plan.hpp"
#include "io/dataset/extent.hpp"
#include "io/loader/file_table.hpp"

namespace sprat::io {

/// What is read next, without an end.
using NextExtent = std::function<Extent()>;

/// MB/s of the bytes that were asked for, in the steady part of the turn. `files` are numbered as
/// the extents are. Throws Error{unavailable} naming a file that cannot be read, or that changed.
double read_rate(const FileTable& files, const BenchWay& way, std::uint32_t alignment,
                 const NextExtent& next, double seconds);

/// Reads extents once, in their order, for `seconds` at most; how many, at least one of them if
/// there are some. The page cache then has them, if they are few enough.
std::size_t read_once(const FileTable& files, std::span<const Extent> extents, double seconds);

struct ReleasedPages {
  std::uint32_t files = 0, refused = 0;
};
/// Asks the kernel to let go of the files' pages in the page cache; it keeps those that are being
/// written, and those that somebody has mapped. Needs no rights but to read the files.
ReleasedPages release_pages(const FileTable& files);

}  // namespace sprat::io
