// Makes a dataset's index: in parallel, only of what changed, going on where a killed process
// stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/dataset/dataset.hpp"
#include "io/dataset/index.hpp"

namespace sprat::io {

struct IndexProgress {
  std::uint64_t files = 0, of_files = 0;  ///< Done, of all.
  std::uint64_t bytes = 0, records = 0;   ///< Of the files that are done.
};
/// Called after each file, by one thread at a time; must not throw.
using ProgressHook = std::function<void(const IndexProgress&)>;

/// What of an index that is there is believed: that files are those that it names, or, each file
/// looked at, those whose stamps are as they were.
enum class Trust { names, stamps };

struct IndexedDataset {
  DatasetIndex index;
  std::string folder;         ///< That the index's names are relative to.
  std::string kept_at;        ///< Empty where no place could be written to.
  std::uint64_t indexed = 0;  ///< Files that were read now; the others were known.
};

/// Throws Error{unavailable} naming the files that cannot be indexed; what could be is kept.
IndexedDataset index_dataset(const DatasetOptions& options, Trust trust, const ProgressHook& hook);

/// The records of one file, found now.
FileRecords index_file(const Format& format, const FormatOptions& options, const std::string& path);

/// The path of a file of the index.
std::string path_in(const std::string& folder, const std::string& name);

/// Threads that index: as many as users say, or a quarter of the processor's.
int indexing_threads(int wanted);

}  // namespace sprat::io
