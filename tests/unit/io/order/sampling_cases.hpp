// Samplings of every kind on small datasets, which tests of orders iterate.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/base/hash.hpp"
#include "io/order/sampling.hpp"
#include "tests/unit/io/order/memory_table.hpp"

namespace sprat::io {

struct SamplingCase {
  std::string name;
  std::shared_ptr<const MemoryTable> table;
  SamplingOptions options;

  std::unique_ptr<const Sampling> make(std::uint64_t seed = 5) const {
    return make_sampling({.table = *table, .options = options, .seed = seed});
  }
};

/// Each kind with each shuffle, on files of several sizes, some of them empty.
inline std::vector<SamplingCase> sampling_cases() {
  const auto tokens =
      std::make_shared<const MemoryTable>(token_files({500, 0, 33, 7, 1000, 64, 0, 321}));
  const auto records = std::make_shared<const MemoryTable>(
      sized_files({40, 0, 1, 77, 5, 130, 0}, {.least = 1, .most = 60, .unit = 2}));
  const auto documents = std::make_shared<const MemoryTable>(
      sized_files({40, 0, 1, 77, 5, 130, 0}, {.least = 0, .most = 60, .unit = 2}));
  std::vector<SamplingCase> cases;
  for (const SamplingKind* kind : all_sampling_kinds()) {
    const std::string name = kind->name;
    for (const Shuffle shuffle : {Shuffle::none, Shuffle::full, Shuffle::chunks}) {
      SamplingOptions options{.kind = name, .shuffle = shuffle};
      options.mixed_chunks = shuffle == Shuffle::chunks ? 2 : options.mixed_chunks;
      if (name == "records") {
        cases.push_back({name, records, options});
      } else if (name == "windows") {
        options.length = 16;
        cases.push_back({name + " of a stream", tokens, options});
        options.across_files = false;
        cases.push_back({name + " of files", tokens, options});
      } else {
        options.length = 48;  // some documents are longer
        options.element_bytes = 2;
        options.block = name == "packed_whole" ? 64 : options.block;
        cases.push_back({name, documents, options});
      }
      cases.back().name += text(" shuffle ", static_cast<int>(shuffle));
      if (shuffle == Shuffle::chunks) {
        SamplingCase chunked = cases.back();
        chunked.options.chunk = 7;
        chunked.name += " of equal chunks";
        cases.push_back(chunked);
      }
    }
  }
  return cases;
}

/// The records that a sample has bytes of.
inline std::set<std::uint64_t> records_of(const MemoryTable& table, const Sample& sample) {
  std::set<std::uint64_t> records;
  for (const Extent& extent : sample.extents) {
    Extent last = extent;
    last.offset += extent.bytes - (extent.bytes > 0 ? 1 : 0);
    for (std::uint64_t r = table.record_at(extent); r <= table.record_at(last); ++r) {
      records.insert(r);
    }
  }
  return records;
}

inline bool touches(const std::set<std::uint64_t>& records, SkippedRecords skipped) {
  return std::ranges::any_of(records, [&](std::uint64_t record) {
    const RecordRange* range = range_from(skipped, record);
    return range != nullptr && range->begin <= record;
  });
}

/// Of all that a sample says; samples of other bytes have another one.
inline std::uint64_t hash_of(const Sample& sample) {
  std::uint64_t hash = mix_bits(sample.source + 1);
  const auto add = [&](std::uint64_t value) {
    hash = mix_bits(hash + golden_step) ^ mix_bits(value + 7);
  };
  add(sample.record);
  for (const Extent& extent : sample.extents) {
    add(extent.file);
    add(extent.offset);
    add(extent.bytes);
  }
  for (const std::uint32_t length : sample.lengths) {
    add(length);
  }
  return hash;
}

}  // namespace sprat::io
