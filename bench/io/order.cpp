// What one sample's place costs, by sampling and shuffle, and what tables of packed documents cost
// to make, a document. Datasets are arithmetic, so that no memory of theirs is measured.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "comm/base/hash.hpp"
#include "io/order/sample_stream.hpp"

namespace sprat::io {
namespace {

/// Files of 100,000 records each, of one size, or of sizes that a hash draws. A Dataset searches
/// the file of a record beside that.
class ArithmeticTable final : public RecordTable {
 public:
  ArithmeticTable(std::uint64_t records, std::uint64_t record_bytes)
      : records_(records), record_bytes_(record_bytes) {}

  std::uint64_t records() const noexcept override { return records_; }
  Extent record(std::uint64_t index) const override {
    const std::uint64_t bytes = record_bytes_ > 0 ? record_bytes_ : 2 + mix_bits(index) % 2000 * 2;
    return {.file = static_cast<std::uint32_t>(index / in_file),
            .offset = index % in_file * (record_bytes_ > 0 ? record_bytes_ : 4000),
            .bytes = bytes};
  }
  std::uint32_t file_count() const noexcept override {
    return static_cast<std::uint32_t>(records_ / in_file);
  }
  std::string file_name(std::uint32_t file) const override { return std::to_string(file); }
  std::uint64_t first_record(std::uint32_t file) const override { return file * in_file; }
  std::uint64_t record_bytes() const noexcept override { return record_bytes_; }
  std::uint64_t fingerprint() const noexcept override { return records_; }

 private:
  static constexpr std::uint64_t in_file = 100'000;
  std::uint64_t records_, record_bytes_;
};

struct Measured {
  std::string name;
  std::uint64_t records, record_bytes;
  SamplingOptions options;
};

std::vector<Measured> all_measured() {
  constexpr std::uint64_t many = 100'000'000, documents = 1'000'000;
  std::vector<Measured> all;
  for (const Shuffle shuffle : {Shuffle::none, Shuffle::full, Shuffle::chunks}) {
    const char* const names[] = {"none", "full", "chunks"};
    const std::string name = std::string("/") + names[static_cast<int>(shuffle)];
    all.push_back({"records" + name, many, 0, {.kind = "records", .shuffle = shuffle}});
    all.push_back(
        {"windows" + name, many, 2, {.kind = "windows", .shuffle = shuffle, .length = 2048}});
    all.push_back({"packed_cut" + name,
                   documents,
                   0,
                   {.kind = "packed_cut", .shuffle = shuffle, .length = 2048, .element_bytes = 2}});
    all.push_back(
        {"packed_whole" + name,
         documents,
         0,
         {.kind = "packed_whole", .shuffle = shuffle, .length = 2048, .element_bytes = 2}});
  }
  return all;
}

/// Samples one after another, as a loader asks for them; tables are there.
void place_samples(benchmark::State& state, const SampleStream& stream) {
  const SkipList skips(stream.sources());
  std::uint64_t index = 0;
  benchmark::DoNotOptimize(stream.sample({.index = 0}, skips));
  for (auto _ : state) {
    benchmark::DoNotOptimize(stream.sample({.index = index}, skips));
    index = (index + 1) % stream.samples();
  }
}

void make_table(benchmark::State& state, const Measured& measured) {
  const ArithmeticTable table(measured.records, measured.record_bytes);
  for (auto _ : state) {
    const auto sampling = make_sampling({.table = table, .options = measured.options, .seed = 1});
    benchmark::DoNotOptimize(sampling->sample(0, 0, {}));
  }
  state.counters["per_document"] = benchmark::Counter(
      static_cast<double>(measured.records),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

StreamSource source_of(const Measured& measured) {
  return {.table = std::make_shared<const ArithmeticTable>(measured.records, measured.record_bytes),
          .sampling = measured.options};
}

[[maybe_unused]] const bool registered = [] {
  StreamOptions mixture;
  for (const Measured& measured : all_measured()) {
    benchmark::RegisterBenchmark(
        ("order/" + measured.name).c_str(), [measured](benchmark::State& state) {
          place_samples(state, SampleStream({.sources = {source_of(measured)}, .seed = 1}));
        });
    if (measured.name.starts_with("packed")) {
      benchmark::RegisterBenchmark(
          ("order_table/" + measured.name).c_str(),
          [measured](benchmark::State& state) { make_table(state, measured); })
          ->Unit(benchmark::kMillisecond);
    }
    if (measured.name == "records/full") {
      mixture.sources.assign(8, source_of(measured));
    }
  }
  benchmark::RegisterBenchmark("order/mixture_of_8", [mixture](benchmark::State& state) {
    place_samples(state, SampleStream(mixture));
  });
  return true;
}();

}  // namespace
}  // namespace sprat::io
