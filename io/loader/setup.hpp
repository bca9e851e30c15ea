// What a loader's options come to: sources that are open, an order, a way to read. Made once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/caches/block_caches.hpp"
#include "io/cores/core_plan.hpp"
#include "io/dataset/dataset.hpp"
#include "io/loader/fetcher.hpp"
#include "io/loader/file_table.hpp"
#include "io/loader/lustre/lustre_files.hpp"
#include "io/order/sample_stream.hpp"
#include "io/readers/choice.hpp"
#include "io/report/cause.hpp"
#include "sprat/data.hpp"

namespace sprat::io {

struct LoaderSetup {
  std::vector<std::shared_ptr<const Dataset>> sources;
  SampleForm form;
  std::vector<std::vector<std::byte>> separators;  ///< Of each source; empty where it has none.
  std::shared_ptr<const FileTable> files;
  std::shared_ptr<const LustreFiles> lustre;  ///< Null: none is on Lustre.
  std::shared_ptr<const SampleStream> stream;
  std::vector<BatchSlots> slots;  ///< Of each batch, this loader's.
  std::uint64_t memory_bytes = 0;
  std::uint64_t batch_bytes = 0;  ///< What this rank's part of a batch takes, about.
  FileSystem where;               ///< Of the first source's files.
  ReaderChoice choice;
  int io_threads = 1;
  CorePlan cores;
  std::shared_ptr<BlockCaches> caches;  ///< Null without a cache folder.
  /// Of memory_bytes, where there is one: what waits to be stored, and what is read along for it.
  std::uint64_t storing_bytes = 0, filling_bytes = 0;
  StorageFacts facts;
};

/// Throws Error naming the option or the file, and the remedy.
LoaderSetup set_up(const LoaderOptions& options);

}  // namespace sprat::io
