// The thread that reads ahead: plans batches, starts reads, and joins what comes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "io/cores/core_budget.hpp"
#include "io/loader/assembly.hpp"
#include "io/loader/cached_rows.hpp"
#include "io/loader/delivery.hpp"
#include "io/loader/depth.hpp"
#include "io/loader/file_table.hpp"
#include "io/loader/inbox.hpp"
#include "io/loader/lustre/lustre_files.hpp"
#include "io/loader/near_reads.hpp"
#include "io/loader/observer.hpp"
#include "io/order/global_batches.hpp"
#include "io/order/sample_stream.hpp"
#include "io/order/skip_list.hpp"
#include "io/readers/open_files.hpp"
#include "io/readers/reader.hpp"
#include "io/reading/plan.hpp"
#include "io/reading/scheduler.hpp"

namespace sprat::io {

/// How samples are given: as rows of elements, or as records.
struct SampleForm {
  std::uint64_t row_bytes = 0;  ///< 0: records.
  std::string element_type = {};
  std::uint64_t row_elements = 0;
  bool fills_rows = true;  ///< Else a row ends with zeros.
};

/// Which samples are fetched, and for whom.
struct FetchOrder {
  std::shared_ptr<const SampleStream> stream;
  GlobalBatches batches;
  int rank = 0, ranks = 1;        ///< Those that share the work of bringing files back.
  std::vector<BatchSlots> slots;  ///< Of each batch, in this order.
  std::uint64_t behind_last = 0;  ///< Batches are [0, behind_last).
  SampleForm form;
  std::vector<std::vector<std::byte>> separators;  ///< Of each source; empty where it has none.
  Corrupt corrupt = Corrupt::stop;
  /// Nothing is read before, unless Inbox::begin() says so.
  std::chrono::nanoseconds idle_first = std::chrono::nanoseconds(0);
};

/// How they are read.
struct FetchReading {
  std::shared_ptr<const FileTable> files;
  std::unique_ptr<Reader> reader;
  std::uint32_t alignment = 1;
  bool direct = false;
  bool may_bypass = false;    ///< Not direct, but long reads may go past the page cache.
  bool tries_cached = false;  ///< Reads can be tried without waiting for storage.
  std::chrono::nanoseconds look_again = std::chrono::seconds(1);  ///< See OpenFilesOptions.
  SchedulerLimits scheduler;
  ReadPlanLimits plan;
  std::uint64_t memory_bytes = 0;                       ///< Of samples, those in use too.
  std::shared_ptr<BlockCaches> caches = nullptr;        ///< Null: none.
  std::uint64_t fill_bytes = 0;                         ///< See NearReadsOptions.
  std::shared_ptr<const LustreFiles> lustre = nullptr;  ///< Null: none is on Lustre.
};

/// Whom the thread works for. All outlive it.
struct FetchPartners {
  Delivery& delivery;
  std::shared_ptr<Inbox> inbox;
  std::shared_ptr<MemoryPool> pool;
  /// Samples whose bytes are complete; empty where nothing is to be decoded.
  std::function<void(const std::vector<SampleRef>&)> decode;
  /// How many bytes may be announced and not taken.
  std::function<std::uint64_t()> window;
  /// The window keeps storage from more reads that it could have.
  std::function<void()> held_back;
  /// Called about once a second.
  std::function<void()> each_second;
  std::shared_ptr<CoreBudget> cores;  ///< Counts what the thread takes.
  Observer& observer;
};

class Fetcher final {
 public:
  Fetcher(FetchOrder order, FetchReading reading, FetchPartners partners);
  ~Fetcher();  ///< Waits for reads that are under way.
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

 private:
  class Loop;
  std::shared_ptr<Inbox> inbox_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace sprat::io
