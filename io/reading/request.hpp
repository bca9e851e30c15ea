// What is to be read next: requests, each within one storage target and of a size that targets
// like.
#pragma once

#include <cstdint>
#include <vector>

#include "io/dataset/extent.hpp"

namespace sprat::io {

/// Of an object on storage: OSTs of Lustre by their index; elsewhere one for each file system.
using Target = std::int32_t;

/// How a file's bytes lie on targets: stripe n = (offset / stripe_bytes) % targets.size().
struct StripedRange {
  std::uint64_t begin = 0, end = 0;  ///< In the file.
  std::uint64_t stripe_bytes = 0;    ///< 0: all of it on targets[0].
  std::vector<Target> targets;
};
/// Ascending ranges that cover a file.
using FileLayout = std::vector<StripedRange>;

/// Bytes that are read by one call, and for whom.
struct Request {
  std::uint64_t id = 0;  ///< No two of a planner's are equal.
  Extent extent;         ///< Aligned; may be more than is wanted, and end beyond the file.
  /// Bytes of the extent that are the file's: a read that has so many is whole.
  std::uint64_t in_file_bytes = 0;
  Target target = 0;
  std::uint64_t due = 0;  ///< The position of the first sample that wants it: less is earlier.
  std::uint32_t alignment = 1;  ///< Of offset, length and memory; more than 1 for direct reads.

  friend bool operator==(const Request&, const Request&) = default;
};

}  // namespace sprat::io
