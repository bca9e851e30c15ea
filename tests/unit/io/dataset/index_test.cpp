// The index as bytes: it comes back, and whatever is done to its file, it is whole or refused.
#include "io/dataset/index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "tests/unit/io/dataset/written.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

NamedRecords explicit_file() {
  FileIndex index;
  index.stamp = {.bytes = (std::uint64_t{1} << 47) + 9, .modified_ns = -5};
  index.spans = {{0, 0}, {7, std::uint64_t{1} << 40}, {(std::uint64_t{1} << 47) + 1, 8}};
  index.context = std::string("con\0text", 8);
  return {"a\xff/b.tar", file_records("a", index, {{"b.idx", {3, 4}}})};
}

NamedRecords uniform_file() {
  FileIndex index;
  index.stamp = {.bytes = 1034, .modified_ns = 1};
  index.first = 1024;
  index.stride = 2;
  index.count = 5;
  return {"c.bin", file_records("c", index, {})};
}

DatasetIndex small_index() {
  return {.format = "webdataset", .how = "so", .files = {explicit_file(), uniform_file()}};
}

TEST(DatasetIndexFile, spans_take_12_bytes_and_come_back) {
  const NamedRecords file = explicit_file();
  EXPECT_EQ(file.records.spans.bytes().size(), 36u);
  EXPECT_EQ(file.records.span(1), (RecordSpan{7, std::uint64_t{1} << 40}));
  EXPECT_EQ(file.records.span(2), (RecordSpan{(std::uint64_t{1} << 47) + 1, 8}));
  EXPECT_EQ(uniform_file().records.span(4), (RecordSpan{1032, 2}));
}

TEST(DatasetIndexFile, comes_back_from_its_file) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_index(folder / "index", 7), std::nullopt);
  write_index(folder / "index", 7, small_index());
  EXPECT_EQ(read_index(folder / "index", 7), small_index());
  write_index(folder / "index", 7, {});
  EXPECT_EQ(read_index(folder / "index", 7), DatasetIndex());
  EXPECT_EQ(entries(folder.path()), std::vector<std::string>{"index"});
}

TEST(DatasetIndexFile, of_another_dataset_is_refused) {
  const TemporaryFolder folder;
  write_index(folder / "index", 7, small_index());
  EXPECT_THAT(complaint_about([&] { read_index(folder / "index", 8); }),
              HasSubstr("another dataset"));
}

TEST(DatasetIndexFile, that_is_cut_or_changed_anywhere_is_refused_by_name) {
  const TemporaryFolder folder;
  write_index(folder / "index", 7, small_index());
  const std::string whole = read_whole(folder / "index", 1 << 20);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    write(folder / "cut", whole.substr(0, at));
    EXPECT_THAT(complaint_about([&] { read_index(folder / "cut", 7); }), HasSubstr("cut")) << at;
    std::string changed = whole;
    changed[at] ^= 0x10;
    write(folder / "other", changed);
    EXPECT_THAT(complaint_about([&] { read_index(folder / "other", 7); }), HasSubstr("other"))
        << at;
  }
  write(folder / "long", whole + "x");
  EXPECT_THAT(complaint_about([&] { read_index(folder / "long", 7); }), HasSubstr("damaged"));
}

TEST(DatasetIndexFile, with_holes_longer_than_memory_is_refused_before_memory_is_made) {
  const TemporaryFolder folder;
  write_index(folder / "index", 7, small_index());
  std::string bytes = read_whole(folder / "index", 1 << 20);
  // Behind magic, version, key, format, "so" and the number of files: the length of the first.
  const std::uint64_t length = std::uint64_t{1} << 43;
  std::memcpy(bytes.data() + 8 + 4 + 8 + 8 + 10 + 8 + 2 + 8, &length, sizeof length);
  write(folder / "index", bytes);
  std::filesystem::resize_file(folder / "index", length + 1000);
  EXPECT_THAT(complaint_about([&] { read_index(folder / "index", 7); }),
              testing::AllOf(HasSubstr(folder / "index"), HasSubstr("this machine has")));
}

TEST(DatasetIndexFile, that_lies_with_a_right_checksum_is_refused) {
  const TemporaryFolder folder;
  DatasetIndex beyond = small_index();
  beyond.files[0].records.stamp.bytes -= 1;  // the last record ends behind the file now
  write_index(folder / "index", 7, beyond);
  EXPECT_THAT(complaint_about([&] { read_index(folder / "index", 7); }),
              HasSubstr("does not lie in a file"));
  DatasetIndex more = small_index();
  more.files[1].records.count = ~std::uint64_t{0} / 2 + 2;  // times 2 it is 2 more than 2^64
  write_index(folder / "index", 7, more);
  EXPECT_THAT(complaint_about([&] { read_index(folder / "index", 7); }), HasSubstr("do not lie"));
  DatasetIndex unsorted = small_index();
  std::swap(unsorted.files[0], unsorted.files[1]);
  write_index(folder / "index", 7, unsorted);
  EXPECT_THAT(complaint_about([&] { read_index(folder / "index", 7); }), HasSubstr("order"));
}

TEST(DatasetIndexFile, names_files_as_paths_can) {
  for (const std::string& name : {std::string(), std::string("\0", 1), std::string("a\0b", 3)}) {
    NamedRecords file = uniform_file();
    file.name = name;
    EXPECT_THAT(complaint_about([&] { decode_entry(encode_entry(file)); }), HasSubstr("no name"));
  }
}

TEST(DatasetIndexFile, takes_no_records_beyond_a_file) {
  FileIndex index;
  index.stamp = {.bytes = 10, .modified_ns = 0};
  index.spans = {{8, 3}};
  EXPECT_THAT(complaint_about([&] { file_records("a.tar", index, {}); }), HasSubstr("a.tar"));
  index.spans = {{std::uint64_t{1} << 50, 0}};
  EXPECT_THAT(complaint_about([&] { file_records("a.tar", index, {}); }), HasSubstr("a.tar"));
}

}  // namespace
}  // namespace sprat::io
