// Separators that no file has: samples are those of documents that end with them in their files.
#include "io/loader/separators.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "sprat/data.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

constexpr std::uint16_t separator = 50256;

std::vector<std::uint16_t> inserted(std::vector<std::uint16_t> row,
                                    const std::vector<std::uint32_t>& lengths,
                                    const std::vector<bool>& separated) {
  const auto filled = insert_separators(std::as_writable_bytes(std::span(row)),
                                        {.lengths = lengths,
                                         .separated = separated,
                                         .separator = std::as_bytes(std::span(&separator, 1))});
  row.resize(filled.size() / sizeof separator);
  return row;
}

TEST(Separators, stand_behind_the_documents_that_end) {
  using Row = std::vector<std::uint16_t>;
  EXPECT_EQ(inserted({1, 2, 3, 4, 0, 0}, {3, 3}, {true, true}),
            (Row{1, 2, separator, 3, 4, separator}));
  EXPECT_EQ(inserted({1, 2, 3, 4, 0}, {3, 2}, {true, false}), (Row{1, 2, separator, 3, 4}));
  EXPECT_EQ(inserted({1, 2, 0, 9, 9}, {2, 1}, {false, true}), (Row{1, 2, separator}));
  EXPECT_EQ(inserted({7, 0, 0, 0}, {1, 1, 2}, {true, true, true}),
            (Row{separator, separator, 7, separator}))
      << "documents of which only the separator is here, or that are empty";
  EXPECT_EQ(inserted({1, 2}, {2}, {false}), (Row{1, 2}));
}

/// Megatron's pair: documents of 0 to 40 tokens, each with `behind` behind it.
void write_documents(const std::string& stem, const std::vector<std::uint16_t>& behind) {
  std::vector<std::uint16_t> tokens;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> places;
  for (int document = 0; document < 120; ++document) {
    const std::size_t begin = tokens.size();
    for (int token = 0; token < document * document % 41; ++token) {
      tokens.push_back(static_cast<std::uint16_t>(100 * document + token));
    }
    tokens.insert(tokens.end(), behind.begin(), behind.end());
    lengths.push_back(static_cast<std::int32_t>(tokens.size() - begin));
    places.push_back(static_cast<std::int64_t>(2 * begin));
  }
  std::ofstream bin(stem + ".bin", std::ios::binary), idx(stem + ".idx", std::ios::binary);
  const auto put = [](std::ofstream& file, const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  };
  put(bin, tokens);
  idx.write("MMIDIDX\0\0", 9);
  const std::uint64_t version = 1, sequences = lengths.size(), documents = 1;
  put(idx, std::span(&version, 1));
  idx.put(8);  // u16
  put(idx, std::span(&sequences, 1));
  put(idx, std::span(&documents, 1));
  put(idx, lengths);
  put(idx, places);
  put(idx, std::vector<std::int64_t>{0});
}

LoaderOptions packed(const std::string& path) {
  return {.sources = {{.paths = {path}}},
          .seed = 7,
          .samples = SampleKind::packed,
          .length = 24,
          .batch = 9};
}

/// Rows and the lengths of their documents, of the first batches.
std::vector<std::string> loaded_samples(const LoaderOptions& options) {
  Loader loader(options);
  std::vector<std::string> samples;
  for (int batch = 0; batch < 40; ++batch) {
    const DataBatch rows = *loader.next();
    for (std::size_t sample = 0; sample < rows.size(); ++sample) {
      const DataField row = rows.field(sample, 0);
      std::string told;
      for (std::size_t at = 0; at < row.bytes.size(); at += 2) {
        std::uint16_t token = 0;
        std::memcpy(&token, row.bytes.data() + at, sizeof token);
        told += std::to_string(token) + " ";
      }
      for (const std::uint32_t length : rows.lengths(sample)) {
        told += "| " + std::to_string(length);
      }
      samples.push_back(told);
    }
  }
  return samples;
}

TEST(SeparatedLoader, gives_what_documents_give_that_end_with_the_separator) {
  const TemporaryFolder folder;
  write_documents(folder / "without", {});
  write_documents(folder / "with", {separator});
  for (const SampleKind kind : {SampleKind::packed, SampleKind::packed_whole}) {
    for (const Shuffle shuffle : {Shuffle::full, Shuffle::chunks, Shuffle::none}) {
      LoaderOptions with = packed(folder / "with.bin"), without = packed(folder / "without.bin");
      with.samples = without.samples = kind;
      with.shuffle = without.shuffle = shuffle;
      with.chunk = without.chunk = shuffle == Shuffle::chunks ? 10 : 0;
      const std::vector<std::string> plain = loaded_samples(without);
      without.sources[0].separator = separator;
      EXPECT_EQ(loaded_samples(without), loaded_samples(with));
      EXPECT_NE(loaded_samples(without), plain);
    }
  }
}

/// Whether each document's tokens, which begin with a hundred of their own, are as many as its
/// length says.
bool fits(const DataBatch& rows, std::size_t sample) {
  const std::span<const std::byte> bytes = rows.elements();
  std::size_t at = sample * 25;
  for (const std::uint32_t length : rows.lengths(sample)) {
    std::vector<std::uint16_t> tokens(length);
    std::memcpy(tokens.data(), bytes.data() + 2 * at, 2 * length);
    at += length;
    for (std::size_t i = 1; i < length; ++i) {
      const bool ends = i + 1 == length && tokens[i] == separator;
      if (!ends && tokens[i] != tokens[i - 1] + 1) {
        return false;
      }
    }
  }
  return at == (sample + 1) * 25;
}

TEST(SeparatedLoader, gives_a_sample_that_takes_a_damaged_ones_place_its_own_lengths) {
  const TemporaryFolder folder;
  write_documents(folder / "some", {});
  for (const bool separated : {false, true}) {
    LoaderOptions options = packed(folder / "some.bin");
    options.corrupt = Corrupt::skip;
    if (separated) {
      options.sources[0].separator = separator;
    }
    std::mutex mutex;  // guards what follows
    std::map<std::uint64_t, int> calls;
    // Twice, for what is damaged is read again.
    options.decode = {{"breaks", [&](DecodedRecord& record) {
                         const std::lock_guard lock(mutex);
                         if (record.sample() % 10 == 0 && ++calls[record.sample()] <= 2) {
                           throw std::runtime_error("broken");
                         }
                       }}};
    Loader loader(options);
    for (int batch = 0; batch < 8; ++batch) {
      const DataBatch rows = *loader.next();
      for (std::size_t sample = 0; sample < rows.size(); ++sample) {
        EXPECT_TRUE(fits(rows, sample)) << "sample " << sample << " of batch " << batch;
      }
    }
  }
}

std::string loader_refusal(const LoaderOptions& options) {
  try {
    const Loader loader(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(SeparatedLoader, refuses_a_separator_that_nothing_takes) {
  const TemporaryFolder folder;
  write_documents(folder / "some", {});
  LoaderOptions options = packed(folder / "some.bin");
  options.sources[0].separator = 65536;
  EXPECT_THAT(loader_refusal(options),
              testing::HasSubstr("separator 65536 is no token of type u16"));
  options.sources[0].separator = 0;
  options.samples = SampleKind::records;
  options.length = 0;
  EXPECT_THAT(loader_refusal(options), testing::HasSubstr("takes no separator"));
}

TEST(SeparatedLoader, goes_on_with_the_same_separator_alone) {
  const TemporaryFolder folder;
  write_documents(folder / "some", {});
  LoaderOptions options = packed(folder / "some.bin");
  options.sources[0].separator = 1;
  Loader first(options);
  first.next();
  options.sources[0].separator = 2;
  Loader other(options);
  try {
    other.resume(first.state());
    FAIL() << "went on";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("separator"));
  }
}

}  // namespace
}  // namespace sprat::io
