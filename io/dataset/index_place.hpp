// Where a dataset's index is kept, and by what it is told from those of other datasets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/dataset/dataset.hpp"

namespace sprat::io {

struct IndexPlaces {
  std::string folder;     ///< Of the first path: names in the index are relative to it.
  std::uint64_t key = 0;  ///< Of paths relative to that folder, format and options.
  /// In the order in which they are looked at, and written to: beside the files, then the user's
  /// cache folder. One, if users name it.
  std::vector<std::string> paths;
};

/// Reads the environment, for the cache folder; touches no file but to see which paths are folders.
IndexPlaces index_places(const DatasetOptions& options);

}  // namespace sprat::io
