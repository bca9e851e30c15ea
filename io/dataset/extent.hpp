// Where bytes of a dataset lie.
#pragma once

#include <cstdint>
#include <vector>

namespace sprat::io {

/// A range of bytes in one file of a dataset.
struct Extent {
  std::uint32_t file = 0;  ///< Its index in the dataset's list of files.
  std::uint64_t offset = 0, bytes = 0;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// The extents of a sample, one after another, are its bytes.
using Extents = std::vector<Extent>;

}  // namespace sprat::io
