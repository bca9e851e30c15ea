// A sample is a record.
//
// Use: images, volumes, lines: whatever is decoded alone.
// Cost: O(1); with Shuffle::chunks that of VisitOrder.
#include <array>

#include "comm/base/check.hpp"
#include "io/order/visit_order.hpp"

namespace sprat::io {
namespace {

class RecordSampling final : public Sampling {
 public:
  RecordSampling(const RecordTable& table, VisitOptions options)
      : table_(table), visits_(std::move(options)) {}

  std::uint64_t samples() const override { return table_.records(); }

  Sample sample(std::uint64_t epoch, std::uint64_t index, SkippedRecords skipped) const override {
    const std::uint64_t record = usable_record(visits_(epoch, index), samples(), skipped);
    return {.record = record, .extents = {table_.record(record)}};
  }

 private:
  const RecordTable& table_;
  VisitOrder visits_;
};

std::unique_ptr<const Sampling> make_records(SamplingInput input) {
  const SamplingOptions& options = input.options;
  const std::uint64_t records = input.table.records();
  require(records > 0, "the dataset has no records");
  ChunkBegins chunks;
  if (options.shuffle == Shuffle::chunks) {
    chunks = options.chunk > 0 ? equal_chunks(records, options.chunk) : file_chunks(input.table);
  }
  return std::make_unique<RecordSampling>(input.table,
                                          VisitOptions{.shuffle = options.shuffle,
                                                       .seed = input.seed,
                                                       .count = records,
                                                       .chunks = std::move(chunks),
                                                       .mixed_chunks = options.mixed_chunks});
}

constexpr std::array<std::string_view, 3> records_options = {"shuffle", "chunk", "mixed_chunks"};

}  // namespace

extern const SamplingKind records_sampling;
const SamplingKind records_sampling = {.name = "records",
                                       .about = "a sample is a record",
                                       .options = records_options,
                                       .make = make_records};

}  // namespace sprat::io
