// Documents with a separator behind them: as documents that are one element longer, damaged or not.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/order/sampling.hpp"
#include "tests/unit/io/order/memory_table.hpp"

namespace sprat::io {
namespace {

constexpr std::uint64_t element_bytes = 2;

/// The same documents with another element at their end.
MemoryTable longer(const std::vector<std::vector<std::uint64_t>>& files) {
  std::vector<std::vector<std::uint64_t>> all = files;
  for (std::vector<std::uint64_t>& file : all) {
    for (std::uint64_t& bytes : file) {
      bytes += element_bytes;
    }
  }
  return MemoryTable(all);
}

std::string element_text(std::uint64_t document, std::uint64_t element, bool ends) {
  return ends ? "; " : text(document, ".", element, " ");
}

/// Each element by document and place, those behind documents alike.
std::string elements_of(const MemoryTable& table, const Sample& sample, bool last_is_separator) {
  std::string told;
  std::size_t next = 0;
  for (std::size_t piece = 0; piece < sample.lengths.size(); ++piece) {
    const bool separated = !sample.separated.empty() && sample.separated[piece];
    const std::uint64_t in_file = sample.lengths[piece] - (separated ? 1 : 0);
    if (in_file > 0 || sample.separated.empty()) {
      const Extent& extent = sample.extents.at(next++);
      EXPECT_EQ(extent.bytes, in_file * element_bytes);
      if (extent.bytes > 0) {
        const std::uint64_t document = table.record_at(extent);
        const Extent whole = table.record(document);
        const std::uint64_t first = (extent.offset - whole.offset) / element_bytes;
        const std::uint64_t elements = whole.bytes / element_bytes;
        for (std::uint64_t at = first; at < first + in_file; ++at) {
          told += element_text(document, at, last_is_separator && at + 1 == elements);
        }
      }
    }
    told += separated ? element_text(0, 0, true) : "";
  }
  EXPECT_EQ(next, sample.extents.size());
  return told;
}

TEST(SeparatedDocuments, are_packed_as_documents_that_hold_their_separator) {
  std::vector<std::vector<std::uint64_t>> files(3);
  for (std::uint64_t document = 0; document < 90; ++document) {
    files[document % 3].push_back(document * document % 47 * element_bytes);
  }
  const MemoryTable without(files), with = longer(files);
  const std::vector<RecordRange> damaged = {{.begin = 3, .end = 5}, {.begin = 40, .end = 41}};
  for (const char* kind : {"packed_cut", "packed_whole"}) {
    for (const Shuffle shuffle : {Shuffle::none, Shuffle::full, Shuffle::chunks}) {
      SamplingOptions options{
          .kind = kind, .shuffle = shuffle, .length = 20, .element_bytes = element_bytes};
      const auto plain = make_sampling({.table = with, .options = options, .seed = 3});
      options.separator = 7;
      const auto separated = make_sampling({.table = without, .options = options, .seed = 3});
      ASSERT_EQ(separated->samples(), plain->samples()) << kind;
      for (std::uint64_t index = 0; index < plain->samples(); ++index) {
        for (const SkippedRecords skipped : {SkippedRecords{}, SkippedRecords{damaged}}) {
          const Sample one = separated->sample(2, index, skipped);
          const Sample other = plain->sample(2, index, skipped);
          EXPECT_EQ(one.lengths, other.lengths);
          EXPECT_EQ(one.record, other.record);
          EXPECT_EQ(elements_of(without, one, false), elements_of(with, other, true))
              << kind << ' ' << static_cast<int>(shuffle) << ", sample " << index;
        }
      }
    }
  }
}

TEST(SeparatedDocuments, tell_of_their_separator_in_the_orders_text) {
  SamplingOptions options{.kind = "packed_cut", .length = 20, .element_bytes = 2};
  EXPECT_EQ(options_text(options).find("separator"), std::string::npos);
  options.separator = 0;
  EXPECT_NE(options_text(options).find("separator=0"), std::string::npos);
}

}  // namespace
}  // namespace sprat::io
