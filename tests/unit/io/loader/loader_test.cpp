// The loader as programs see it: orders, ranks, restarts, stages, damage, errors.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "io/report/report_line.hpp"
#include "sprat/data.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/formats/specimens.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat {
namespace {

/// Token i of the whole dataset is i modulo 65521, over files of these lengths.
void write_tokens(const std::string& folder, const std::vector<std::size_t>& lengths) {
  std::size_t next = 0;
  for (std::size_t file = 0; file < lengths.size(); ++file) {
    std::vector<std::uint16_t> tokens(lengths[file]);
    for (std::uint16_t& token : tokens) {
      token = static_cast<std::uint16_t>(next++ % 65521);
    }
    std::ofstream out(folder + "/tokens" + std::to_string(file) + ".bin", std::ios::binary);
    out.write(reinterpret_cast<const char*>(tokens.data()),
              static_cast<std::streamsize>(2 * tokens.size()));
  }
}

LoaderOptions windows(const std::string& folder) {
  return {.sources = {{.paths = {folder + "/*.bin"}, .format = "tokens", .token_type = "u16"}},
          .seed = 5,
          .length = 32,
          .batch = 7};
}

/// Windows that begin with such a token.
DecodeStage refuse_multiples_of_five() {
  return {.name = "refuse some", .run = [](DecodedRecord& record) {
            std::uint16_t first = 0;
            std::memcpy(&first, record.find("tokens")->bytes.data(), sizeof first);
            if (first % 5 == 0) {
              throw std::runtime_error("a multiple of five");
            }
          }};
}

/// Lines {"number": i, "text": "..."} of different lengths.
void write_lines(const std::string& path, int count) {
  std::ofstream out(path);
  for (int i = 0; i < count; ++i) {
    out << R"({"number": )" << i << R"(, "text": ")" << std::string(i * 37 % 500, 'x') << "\"}\n";
  }
}

LoaderOptions lines(const std::string& path) {
  return {.sources = {{.paths = {path}}}, .seed = 3, .batch = 8};
}

/// A batch as values: of tokens its rows, of lines their numbers.
std::vector<std::string> values_of(const DataBatch& batch) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const DataField field = batch.field(i, 0);
    values.emplace_back(reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size());
  }
  return values;
}

/// The first `batches` batches of all ranks together, from a state on.
std::vector<std::vector<std::string>> read_all(LoaderOptions options, int ranks, int batches,
                                               std::string* state = nullptr) {
  std::vector<std::vector<std::string>> read(static_cast<std::size_t>(batches));
  std::string end;
  for (int rank = 0; rank < ranks; ++rank) {
    options.rank = rank;
    options.ranks = ranks;
    Loader loader(options);
    if (state != nullptr && !state->empty()) {
      loader.resume(*state);
    }
    for (std::vector<std::string>& values : read) {
      const auto batch = loader.next();
      EXPECT_TRUE(batch);
      for (std::string& value : values_of(*batch)) {
        values.push_back(std::move(value));
      }
    }
    EXPECT_TRUE(end.empty() || loader.state() == end) << "rank " << rank;
    end = loader.state();
  }
  if (state != nullptr) {
    *state = end;
  }
  return read;
}

class LoaderOfTokens : public testing::TestWithParam<const char*> {};

TEST_P(LoaderOfTokens, gives_every_window_of_an_epoch_once) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {1000, 0, 3000, 500});
  LoaderOptions options = windows(folder.path());
  options.reader = GetParam();
  options.epochs = 1;
  options.remainder = Remainder::pad;
  Loader loader(options);
  std::map<int, int> begins;
  std::uint64_t samples = 0;
  while (const auto batch = loader.next()) {
    ASSERT_EQ(batch->element_type(), "u16");
    ASSERT_EQ(batch->elements().size(), batch->size() * 33 * 2);
    for (std::size_t i = 0; i < batch->size(); ++i, ++samples) {
      std::uint16_t row[33];
      std::memcpy(row, batch->elements().data() + i * sizeof row, sizeof row);
      for (int j = 1; j < 33; ++j) {
        ASSERT_EQ(row[j], row[0] + j);
      }
      begins[row[0]] += samples < loader.samples_per_epoch() ? 1 : 0;
    }
  }
  EXPECT_EQ(begins.size(), loader.samples_per_epoch());
  for (const auto& [begin, times] : begins) {
    EXPECT_EQ(times, 1) << begin;
  }
  EXPECT_FALSE(loader.next());
}

TEST_P(LoaderOfTokens, gives_the_slots_of_each_batch_that_it_is_to) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {1000, 3000});
  LoaderOptions options = windows(folder.path());
  options.reader = GetParam();
  const auto whole = read_all(options, 1, 20);
  options.slots = {{.begin = 5, .end = 7}, {.begin = 2, .end = 2}, {.begin = 0, .end = 3}};
  Loader loader(options);
  for (const std::vector<std::string>& batch : whole) {
    EXPECT_EQ(values_of(*loader.next()),
              (std::vector{batch[5], batch[6], batch[0], batch[1], batch[2]}));
  }
  options.slots = {{.begin = 5, .end = 8}};
  EXPECT_THROW(Loader{options}, Error);
}

TEST_P(LoaderOfTokens, any_number_of_ranks_gets_the_same_batches) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {5000, 3000});
  LoaderOptions options = windows(folder.path());
  options.reader = GetParam();
  const auto whole = read_all(options, 1, 80);
  for (const int ranks : {2, 3, 8}) {
    EXPECT_EQ(read_all(options, ranks, 80), whole) << ranks;
  }
}

TEST_P(LoaderOfTokens, goes_on_at_another_number_of_ranks) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {5000, 3000});
  LoaderOptions options = windows(folder.path());
  options.reader = GetParam();
  auto whole = read_all(options, 1, 90);
  std::string state;
  std::vector<std::vector<std::string>> parts;
  for (const int ranks : {2, 1, 3}) {
    for (auto& batch : read_all(options, ranks, 30, &state)) {
      parts.push_back(std::move(batch));
    }
  }
  EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(Readers, LoaderOfTokens, testing::Values("auto", "pool"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Loader, gives_records_with_their_fields) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 100);
  LoaderOptions options = lines(folder.path() + "/lines.jsonl");
  options.epochs = 1;
  options.remainder = Remainder::pad;
  Loader loader(options);
  std::map<std::string, int> numbers;
  while (const auto batch = loader.next()) {
    for (std::size_t i = 0; i < batch->size(); ++i) {
      ASSERT_EQ(batch->fields(i), 2u);
      EXPECT_EQ(batch->field(i, 0).name, "number");
      const DataField text = batch->field(i, 1);
      const int number = std::stoi(values_of(*batch)[i]);
      EXPECT_EQ(text.bytes.size(), static_cast<std::size_t>(number * 37 % 500));
      EXPECT_EQ(batch->record(i), static_cast<std::uint64_t>(number));
      ++numbers[values_of(*batch)[i]];
    }
  }
  EXPECT_EQ(numbers.size(), 100u);
}

TEST(Loader, runs_stages_in_their_order) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 50);
  LoaderOptions options = lines(folder.path() + "/lines.jsonl");
  options.decode_threads = 3;
  options.decode = {{.name = "shorten",
                     .run =
                         [](DecodedRecord& record) {
                           const auto text = record.find("text");
                           std::vector<std::byte> bytes(text->bytes.size() / 2);
                           record.set("text", "text", {}, std::move(bytes));
                           record.remove("number");
                         }},
                    {.name = "count", .run = [](DecodedRecord& record) {
                       const std::size_t length = record.find("text")->bytes.size();
                       std::vector<std::byte> bytes(sizeof length);
                       std::memcpy(bytes.data(), &length, sizeof length);
                       record.set("length", "u64", {}, std::move(bytes));
                     }}};
  Loader loader(options);
  for (int i = 0; i < 20; ++i) {
    const auto batch = loader.next();
    for (std::size_t sample = 0; sample < batch->size(); ++sample) {
      ASSERT_EQ(batch->fields(sample), 2u);
      std::size_t length = 0;
      std::memcpy(&length, batch->field(sample, 1).bytes.data(), sizeof length);
      EXPECT_EQ(length, batch->record(sample) * 37 % 500 / 2);
    }
  }
}

TEST(Loader, a_stage_that_throws_stops_or_skips) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 40);
  LoaderOptions options = lines(folder.path() + "/lines.jsonl");
  options.shuffle = Shuffle::none;
  options.decode = {{.name = "refuse", .run = [](DecodedRecord& record) {
                       const DataField number = *record.find("number");
                       const std::string digits(reinterpret_cast<const char*>(number.bytes.data()),
                                                number.bytes.size());
                       if (digits == "10" || digits == "11") {
                         throw std::runtime_error("no tens");
                       }
                     }}};
  {
    Loader loader(options);
    EXPECT_TRUE(loader.next());
    try {
      loader.next();
      ADD_FAILURE() << "a damaged record was given";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("record 1"), testing::HasSubstr("lines.jsonl"),
                                 testing::HasSubstr("no tens"), testing::HasSubstr("skip")));
    }
    EXPECT_THROW(loader.next(), Error) << "no batch is left out";
  }
  options.corrupt = Corrupt::skip;
  std::vector<std::string> first;
  for (const int ranks : {1, 2, 3}) {
    const auto batches = read_all(options, ranks, 4);
    EXPECT_THAT(batches[1], testing::ElementsAre("8", "9", "12", "12", "12", "13", "14", "15"));
    EXPECT_THAT(batches[2], testing::ElementsAre("16", "17", "18", "19", "20", "21", "22", "23"));
  }
}

// Formats without checksums cannot tell that the page cache gave other bytes than the disk has.
TEST(Loader, a_record_at_which_a_stage_throws_is_read_once_more) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 40);
  LoaderOptions options = lines(folder.path() + "/lines.jsonl");
  options.shuffle = Shuffle::none;
  std::mutex mutex;
  std::set<std::uint64_t> seen;
  options.decode = {{.name = "refuse at first", .run = [&](DecodedRecord& record) {
                       const DataField number = *record.find("number");
                       const std::string digits(reinterpret_cast<const char*>(number.bytes.data()),
                                                number.bytes.size());
                       const std::lock_guard lock(mutex);
                       if (seen.insert(std::stoul(digits)).second) {
                         throw std::runtime_error("torn");
                       }
                     }}};
  Loader loader(options);
  EXPECT_THAT(values_of(*loader.next()),
              testing::ElementsAre("0", "1", "2", "3", "4", "5", "6", "7"));
}

// A window's first token is another's last: what is refused of one says nothing of the other.
TEST(Loader, windows_that_are_refused_give_one_order_on_any_ranks_and_after_a_restart) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {6000});
  LoaderOptions options = windows(folder.path());
  options.decode_threads = 2;
  options.corrupt = Corrupt::skip;
  options.shuffle = Shuffle::full;
  options.decode = {refuse_multiples_of_five()};
  const auto whole = read_all(options, 1, 70);  // more than two epochs
  EXPECT_EQ(read_all(options, 2, 70), whole);
  std::string state;
  auto parts = read_all(options, 1, 30, &state);
  for (auto& batch : read_all(options, 3, 40, &state)) {
    parts.push_back(std::move(batch));
  }
  EXPECT_EQ(parts, whole);
}

TEST(Loader, batches_outlive_it) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 40);
  std::vector<DataBatch> kept;
  std::vector<std::vector<std::string>> values;
  {
    Loader loader(lines(folder.path() + "/lines.jsonl"));
    for (int i = 0; i < 6; ++i) {
      kept.push_back(*loader.next());
      values.push_back(values_of(kept.back()));
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(values_of(kept[i]), values[i]);
  }
}

TEST(Loader, a_file_that_changed_since_it_was_indexed_is_named) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lines.jsonl";
  write_lines(path, 40);
  { Loader loader(lines(path)); }
  write_lines(path, 41);
  const auto read = [&] {
    Loader loader(lines(path));
    loader.next();
  };
  try {
    read();
    ADD_FAILURE() << "another file was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("lines.jsonl"));
  }
}

TEST(Loader, a_file_of_tokens_that_changed_since_it_was_indexed_is_named) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {4000, 4000});
  { Loader loader(windows(folder.path())); }
  write_tokens(folder.path(), {4000, 4001});
  try {
    Loader loader(windows(folder.path()));
    for (int i = 0; i < 200; ++i) {
      loader.next();
    }
    ADD_FAILURE() << "another file was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("tokens1.bin"));
  }
}

/// Other bytes in the file itself, as many as it had.
void overwrite(const std::string& path, char with) {
  const auto bytes = std::filesystem::file_size(path);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file << std::string(bytes, with);
  file.close();
  // Clocks of file systems tick slowly: this is another time for sure.
  const auto time = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
}

/// What next() throws in the end; empty if batches come for longer than a file is trusted.
std::string error_of_reading_on(Loader& loader) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  try {
    while (std::chrono::steady_clock::now() < until && loader.next()) {
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Loader, a_file_that_is_written_to_while_it_is_read_is_named) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {300'000});
  LoaderOptions options = windows(folder.path());
  options.memory_bytes = 1 << 20;
  Loader loader(options);
  EXPECT_TRUE(loader.next());
  overwrite(folder.path() + "/tokens0.bin", 'x');
  EXPECT_THAT(error_of_reading_on(loader),
              testing::AllOf(testing::HasSubstr("tokens0.bin"), testing::HasSubstr("was indexed")));
}

TEST(Loader, a_file_that_is_written_to_stops_it_where_records_may_be_skipped) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lines.jsonl";
  write_lines(path, 20'000);
  LoaderOptions options = lines(path);
  options.corrupt = Corrupt::skip;
  options.memory_bytes = 1 << 20;
  Loader loader(options);
  EXPECT_TRUE(loader.next());
  overwrite(path, '}');  // no record is one any more
  EXPECT_THAT(error_of_reading_on(loader),
              testing::AllOf(testing::HasSubstr("lines.jsonl"), testing::HasSubstr("was indexed")));
}

/// Writes what is dirty, and takes the file out of the page cache, where the file system lets it.
void forget_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  ::fsync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

TEST(Loader, gives_the_same_whether_files_are_cached_or_not) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {300000, 300000, 300000});
  LoaderOptions options = windows(folder.path());
  options.length = 2048;
  options.batch = 64;
  const auto cached = read_all(options, 1, 30);
  for (const int forgotten : {1, 2, 3}) {
    for (int file = 0; file < forgotten; ++file) {
      forget_file(folder.path() + "/tokens" + std::to_string(file) + ".bin");
    }
    EXPECT_EQ(read_all(options, 1, 30), cached) << forgotten << " files are not cached";
  }
}

TEST(Loader, gives_long_records_whichever_way_they_are_read) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/long.tar";
  std::vector<std::string> values;
  for (std::size_t i = 0; i < 6; ++i) {
    values.emplace_back(5'000'011, static_cast<char>('a' + i));
    values.back()[1'000 * i] = '#';
    // Neighbours share a block of direct reads.
    std::ofstream(path, std::ios::app) << io::tar_member(std::to_string(i) + ".bin", values.back());
  }
  std::ofstream(path, std::ios::app) << io::tar_end();
  for (const Shuffle shuffle : {Shuffle::none, Shuffle::full}) {
    Loader loader({.sources = {{.paths = {path}}},
                   .shuffle = shuffle,
                   .memory_bytes = std::uint64_t{48} << 20});
    // Long enough for both ways to be tried, if nothing lies in the page cache.
    for (int i = 0; i < 36; ++i) {
      forget_file(path);
      const auto batch = loader.next();
      const DataField field = batch->field(0, batch->fields(0) - 1);
      const std::string& wanted = values[batch->record(0)];
      ASSERT_EQ(field.bytes.size(), wanted.size());
      ASSERT_EQ(std::memcmp(field.bytes.data(), wanted.data(), wanted.size()), 0) << "batch " << i;
    }
  }
}

/// Records 0, 1, ... of these lengths.
void write_records(const std::string& path, const std::vector<std::size_t>& lengths) {
  std::ofstream out(path);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    out << io::tar_member(std::to_string(i) + ".bin", std::string(lengths[i], 'r'));
  }
  out << io::tar_end();
}

// Batches behind it hold the memory by then, and are taken only after it.
TEST(Loader, what_replaces_a_damaged_record_has_memory_though_it_is_longer) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/records.tar";
  constexpr std::size_t count = 40, tenth = 104'000;
  std::vector<std::size_t> lengths(count, tenth);
  write_records(path, lengths);
  LoaderOptions options{.sources = {{.paths = {path}}},
                        .shuffle = Shuffle::full,
                        .memory_bytes = std::uint64_t{1} << 20,
                        .corrupt = Corrupt::skip,
                        .timeout = std::chrono::seconds(20)};
  std::vector<std::uint64_t> order;
  {
    Loader loader(options);
    for (std::size_t i = 0; i < count; ++i) {
      order.push_back(loader.next()->record(0));
    }
  }
  // One of the first, whose neighbour in the file comes so late that nothing of it is there yet.
  const auto place = [&](std::uint64_t record) { return std::ranges::find(order, record); };
  const auto damaged = std::find_if(order.begin() + 2, order.end(), [&](std::uint64_t record) {
    return record + 1 < count && place(record + 1) - place(record) > 15;
  });
  ASSERT_LT(damaged, order.begin() + 20) << "another seed would give one";
  lengths[*damaged + 1] = 9 * tenth;
  write_records(folder.path() + "/longer.tar", lengths);
  options.sources = {{.paths = {folder.path() + "/longer.tar"}}};
  options.decode = {{.name = "refuse", .run = [number = *damaged](DecodedRecord& record) {
                       const DataField key = *record.find("__key__");
                       const std::string digits(reinterpret_cast<const char*>(key.bytes.data()),
                                                key.bytes.size());
                       if (std::stoull(digits) == number) {
                         throw std::runtime_error("damaged");
                       }
                     }}};
  Loader loader(options);
  for (const std::uint64_t record : order) {
    ASSERT_EQ(loader.next()->record(0), record == *damaged ? record + 1 : record);
  }
}

TEST(Loader, stages_see_windows_whose_rows_were_cached) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {20000});
  LoaderOptions options = windows(folder.path());
  options.decode_threads = 2;
  options.corrupt = Corrupt::skip;
  options.decode = {refuse_multiples_of_five()};
  Loader loader(options);
  for (int i = 0; i < 30; ++i) {
    const auto batch = loader.next();
    for (std::size_t sample = 0; sample < batch->size(); ++sample) {
      std::uint16_t row[33];
      std::memcpy(row, batch->field(sample, 0).bytes.data(), sizeof row);
      EXPECT_NE(row[0] % 5, 0);
      EXPECT_EQ(row[32], row[0] + 32);
      EXPECT_EQ(batch->record(sample), row[0]);
    }
  }
}

TEST(Loader, a_batch_larger_than_its_memory_still_comes) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {3000000});
  LoaderOptions options = windows(folder.path());
  options.length = 100000;
  options.batch = 16;
  options.memory_bytes = 1 << 20;
  options.timeout = std::chrono::seconds(20);
  Loader loader(options);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(loader.next()->elements().size(), 16u * 100001 * 2);
  }
}

TEST(Loader, records_that_its_memory_cannot_hold_are_named_at_once) {
  const TemporaryFolder folder;
  // Texts of holes: as long as they say, and nothing on the disk.
  const auto text_of_holes = [&](const std::string& name, std::uint64_t bytes) {
    std::ofstream(folder.path() + name) << "begin";
    std::filesystem::resize_file(folder.path() + name, bytes);
    return LoaderOptions{.sources = {{.paths = {folder.path() + name}}}};
  };
  const auto refusal = [](const LoaderOptions& options) {
    try {
      Loader loader(options);
      loader.next();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(refusal(text_of_holes("/endless.txt", std::uint64_t{1} << 43)),
              testing::HasSubstr("8796093022208 bytes; a smaller batch"));
  LoaderOptions options = text_of_holes("/long.txt", std::uint64_t{5} << 20);
  options.memory_bytes = std::uint64_t{4} << 20;
  EXPECT_THAT(refusal(options), testing::AllOf(testing::HasSubstr("memory_bytes is 4194304"),
                                               testing::HasSubstr("long.txt, has 5242880 bytes")));
  options.memory_bytes = std::uint64_t{8} << 20;
  EXPECT_EQ(refusal(options), "none");
}

TEST(Loader, numbers_without_measure_mean_for_ever) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {4000});
  LoaderOptions options = windows(folder.path());
  for (const std::uint64_t epochs : {std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    options.epochs = epochs;
    for (const Remainder remainder : {Remainder::carry, Remainder::pad}) {
      options.remainder = remainder;
      options.timeout = std::chrono::milliseconds::max();
      Loader loader(options);
      EXPECT_TRUE(loader.wait(std::chrono::milliseconds::max()));
      EXPECT_TRUE(loader.next()) << epochs;
    }
  }
}

TEST(Loader, a_batch_that_no_memory_holds_is_refused) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/holes.bin") << "xx";
  std::filesystem::resize_file(folder.path() + "/holes.bin", (std::uint64_t{1} << 32) + 2);
  LoaderOptions options = windows(folder.path());
  options.length = std::uint64_t{1} << 30;
  options.batch = (std::uint64_t{1} << 32) - 1;
  try {
    Loader loader(options);
    ADD_FAILURE() << "it was made";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("(4294967295 of about 2147483650 bytes"));
  }
}

TEST(Loader, options_that_make_no_sense_are_named) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 40);
  const LoaderOptions good = lines(folder.path() + "/lines.jsonl");
  const auto refusal = [&](auto&& change) {
    LoaderOptions options = good;
    change(options);
    try {
      Loader loader(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(refusal([](LoaderOptions& one) { one.batch = 0; }), testing::HasSubstr("batch is 0"));
  EXPECT_THAT(refusal([](LoaderOptions& one) { one.rank = 2; }), testing::HasSubstr("rank is 2"));
  EXPECT_THAT(refusal([](LoaderOptions& one) { one.length = 8; }),
              testing::HasSubstr("which has no tokens"));
  EXPECT_THAT(refusal([](LoaderOptions& one) { one.reader = "magic"; }),
              testing::HasSubstr("pool"));
  EXPECT_THAT(refusal([](LoaderOptions& one) { one.memory_bytes = 10; }),
              testing::HasSubstr("memory_bytes is 10"));
  EXPECT_THAT(refusal([](LoaderOptions& one) { one.sources.clear(); }),
              testing::HasSubstr("needs a source"));
}

TEST(Loader, another_order_does_not_go_on_with_a_state) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 40);
  LoaderOptions options = lines(folder.path() + "/lines.jsonl");
  Loader loader(options);
  loader.next();
  const std::string state = loader.state();
  EXPECT_LT(state.size(), 1024u);
  options.seed = 4;
  Loader other(options);
  EXPECT_THROW(other.resume(state), Error);
  EXPECT_TRUE(other.next()) << "a refused state changes nothing";
}

TEST(Loader, a_finished_run_stays_finished) {
  const TemporaryFolder folder;
  write_lines(folder.path() + "/lines.jsonl", 40);
  LoaderOptions options = lines(folder.path() + "/lines.jsonl");
  options.epochs = 1;
  options.timeout = std::chrono::seconds(20);
  Loader loader(options);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(loader.next());
  }
  EXPECT_FALSE(loader.next());
  Loader resumed(options);
  resumed.resume(loader.state());
  EXPECT_FALSE(resumed.next());
}

TEST(Loader, reports_what_it_did) {
  const TemporaryFolder folder;
  write_tokens(folder.path(), {100000});
  Loader loader(windows(folder.path()));
  for (int i = 0; i < 50; ++i) {
    loader.next();
  }
  const LoaderReport report = loader.report();
  EXPECT_THAT(report.json, testing::HasSubstr("\"samples\":350"));
  EXPECT_THAT(report.text, testing::HasSubstr("samples/s"));
  const io::SavedReport saved =
      io::parse_report("lines of a loader", report.json + "\n" + loader.report().json + "\n");
  ASSERT_EQ(saved.report.intervals.size(), 2u) << "sprat io diagnose reads them as they are";
  EXPECT_EQ(saved.report.intervals[0].samples, 350u);
  EXPECT_THAT(loader.describe(), testing::HasSubstr("reads from"));
}

}  // namespace
}  // namespace sprat
