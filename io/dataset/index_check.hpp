// Holds an index against the files themselves: all of them are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/dataset/indexer.hpp"

namespace sprat::io {

struct IndexFindings {
  std::vector<std::string> complaints;  ///< In the order of files; at most some of each.
  std::uint64_t files = 0, records = 0, bytes = 0;  ///< That were read.
  /// Records too large to be held in memory, whose fields were not looked at.
  std::uint64_t unread = 0;
};

/// Finds the records of each file anew, and takes each of them apart. Throws nothing for files that
/// differ: that is what it finds.
IndexFindings check_index(const IndexedDataset& dataset, const DatasetOptions& options,
                          const ProgressHook& hook);

}  // namespace sprat::io
