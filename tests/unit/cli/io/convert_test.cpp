// Tables become samples: shards of MDS, and what Arrow reads of the Parquet files that
// parquet/write.py wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>

#include "cli/io/convert/mds_writer.hpp"
#include "cli/io/convert/parquet.hpp"
#include "io/formats/bytes.hpp"
#include "tests/unit/io/dataset/written.hpp"

namespace sprat::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// A dataset's files in memory, record by record.
class ReadBack {
 public:
  explicit ReadBack(const std::string& folder)
      : dataset_(io::Dataset::open({.paths = {folder}, .format = "mds"})) {}
  std::uint64_t records() const { return dataset_->records(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const std::string& path : dataset_->files()) {
      names.emplace_back(io::name_in(path));
    }
    return names;
  }
  std::vector<io::Field> record(std::uint64_t index) {
    const io::Extent where = dataset_->record(index);
    std::ifstream file(dataset_->files()[where.file], std::ios::binary);
    file.seekg(static_cast<std::streamoff>(where.offset));
    bytes_.resize(where.bytes);
    file.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    return dataset_->format().fields(dataset_->context(where.file), index,
                                     std::as_bytes(std::span(bytes_)));
  }
  io::Field field(std::uint64_t index, const std::string& name) {
    for (const io::Field& one : record(index)) {
      if (one.name == name) {
        return one;
      }
    }
    throw std::runtime_error("no field " + name);
  }
  std::string text(std::uint64_t index, const std::string& name) {
    return std::string(io::text_in(field(index, name).bytes));
  }
  template <class Number>
  Number number(std::uint64_t index, const std::string& name) {
    return io::number_at<Number>(field(index, name).bytes, 0);
  }

 private:
  std::shared_ptr<const io::Dataset> dataset_;
  std::string bytes_;
};

const std::vector<MdsColumn> two_columns = {{"number", "uint16", 2}, {"text", "str", 0}};

TEST(MdsWriting, samples_are_read_as_they_were_written) {
  const TemporaryFolder folder;
  MdsWriter writer(folder / "mds", two_columns, 100'000);
  writer.add(std::array<std::string, 2>{"ab", "one"});
  writer.add(std::array<std::string, 2>{"cd", ""});
  EXPECT_THAT(entries(folder.path()), ElementsAre("mds-unfinished"));
  const MdsWritten written = writer.finish();
  EXPECT_EQ(written.samples, 2u);
  EXPECT_EQ(written.shards, 1u);
  EXPECT_EQ(written.bytes, std::filesystem::file_size(folder / "mds/shard.00000.mds"));
  EXPECT_THAT(entries(folder.path()), ElementsAre("mds"));
  ReadBack read(folder / "mds");
  ASSERT_EQ(read.records(), 2u);
  EXPECT_EQ(read.text(0, "text"), "one");
  EXPECT_EQ(read.text(1, "text"), "");
  EXPECT_EQ(read.field(0, "number").type, "u16");
  EXPECT_EQ(read.text(1, "number"), "cd");
}

TEST(MdsWriting, shards_end_before_they_are_too_long) {
  const TemporaryFolder folder;
  MdsWriter writer(folder / "mds", two_columns, 1000);
  for (int i = 0; i < 20; ++i) {
    writer.add(std::array<std::string, 2>{"ab", std::string(i == 10 ? 2000 : 200, 'x')});
  }
  const MdsWritten written = writer.finish();
  EXPECT_GT(written.shards, 5u);
  ReadBack read(folder / "mds");
  EXPECT_EQ(read.files().size(), written.shards);
  EXPECT_EQ(read.records(), 20u);
  int longer = 0;
  for (const std::string& file : read.files()) {
    const auto bytes = std::filesystem::file_size(folder / ("mds/" + file));
    // A sample that is longer has a shard of its own.
    longer += bytes > 1000 ? 1 : 0;
    EXPECT_LE(bytes, 2400u) << file;
  }
  EXPECT_EQ(longer, 1);
  EXPECT_EQ(read.text(10, "text").size(), 2000u);
}

TEST(MdsWriting, what_is_not_finished_leaves_nothing) {
  const TemporaryFolder folder;
  {
    MdsWriter writer(folder / "mds", two_columns, 1000);
    writer.add(std::array<std::string, 2>{"ab", std::string(2000, 'x')});
    writer.add(std::array<std::string, 2>{"ab", "x"});
    EXPECT_THROW(writer.add(std::array<std::string, 1>{"ab"}), Error);
    EXPECT_THROW(writer.add(std::array<std::string, 2>{"abc", ""}), Error);
  }
  EXPECT_THAT(entries(folder.path()), IsEmpty());
}

TEST(MdsWriting, a_folder_that_is_there_is_left_alone) {
  const TemporaryFolder folder;
  io::write(folder / "mds/mine.txt", "mine");
  EXPECT_THAT(io::complaint_about([&] { MdsWriter(folder / "mds", two_columns, 1000); }),
              HasSubstr("mds is there already"));
  EXPECT_THAT(entries(folder.path()), ElementsAre("mds"));
  EXPECT_THAT(entries(folder / "mds"), ElementsAre("mine.txt"));
}

bool with_arrow() { return parquet_reader().starts_with("Apache Arrow"); }
std::string table_file(const char* name) {
  return std::string(SPRAT_SOURCE_DIR) + "/tests/unit/cli/io/convert/" + name + ".parquet";
}
#define SKIP_WITHOUT_ARROW()                                                      \
  if (!with_arrow()) {                                                            \
    GTEST_SKIP() << "needs Apache Arrow: -D SPRAT_PARQUET=ON, or -D SPRAT_ARROW"; \
  }

TEST(ParquetConversion, without_arrow_it_is_said_what_to_do) {
  if (with_arrow()) {
    GTEST_SKIP() << "this build has Apache Arrow";
  }
  const TemporaryFolder folder;
  EXPECT_THAT(io::complaint_about(
                  [&] { convert_parquet({.files = {table_file("a")}, .folder = folder / "mds"}); }),
              HasSubstr("Build it with -D SPRAT_PARQUET=ON"));
  EXPECT_THAT(entries(folder.path()), IsEmpty());
}

TEST(ParquetConversion, every_row_is_a_sample_with_its_columns) {
  SKIP_WITHOUT_ARROW();
  const TemporaryFolder folder;
  const MdsWritten written = convert_parquet({.files = {table_file("a"), table_file("b")},
                                              .folder = folder / "mds",
                                              .shard_bytes = 10'000});
  EXPECT_EQ(written.samples, 320u);
  EXPECT_GT(written.shards, 1u);
  ReadBack read(folder / "mds");
  ASSERT_EQ(read.records(), 320u);
  for (std::uint64_t i = 0; i < 320; ++i) {
    const std::string number = std::to_string(i);
    EXPECT_EQ(read.text(i, "text"), "row " + number + " \u00fc");
    EXPECT_EQ(read.text(i, "large"), "large " + number);
    EXPECT_EQ(read.number<float>(i, "score"), static_cast<float>(i) / 4);
    EXPECT_EQ(read.number<std::int64_t>(i, "label"), static_cast<std::int64_t>(i) - 3);
    EXPECT_EQ(read.number<std::uint8_t>(i, "good"), i % 3 == 0 ? 1 : 0);
    EXPECT_EQ(read.text(i, "tags"), R"(["a",null,")" + number + "\"]");
    EXPECT_EQ(read.text(i, "image.bytes"), std::string({static_cast<char>(i % 256), 0, -1}));
    EXPECT_EQ(read.text(i, "image.path"), number + ".png");
    EXPECT_EQ(read.text(i, "kind"), i % 2 == 1 ? "cat" : "dog");
    const io::Field tokens = read.field(i, "tokens");
    EXPECT_EQ(tokens.type, "i32");
    ASSERT_THAT(tokens.shape, ElementsAre(i % 4));
    for (std::size_t k = 0; k < i % 4; ++k) {
      EXPECT_EQ(io::number_at<std::int32_t>(tokens.bytes, 4 * k), static_cast<std::int32_t>(k));
    }
    const io::Field box = read.field(i, "box");
    ASSERT_THAT(box.shape, ElementsAre(2));
    EXPECT_EQ(io::number_at<std::uint8_t>(box.bytes, 1), i % 200 + 1);
  }
  EXPECT_EQ(read.field(3, "half").type, "f16");
  EXPECT_EQ(read.number<std::uint16_t>(3, "half"), 0x4200);  // 3
  EXPECT_EQ(read.field(0, "kind").type, "text");
  EXPECT_EQ(read.field(0, "tags").type, "json");
  EXPECT_EQ(read.field(0, "image.bytes").type, "bytes");
}

TEST(ParquetConversion, columns_that_are_named_are_all_there_is) {
  SKIP_WITHOUT_ARROW();
  const TemporaryFolder folder;
  convert_parquet(
      {.files = {table_file("b")}, .columns = {"text", "image"}, .folder = folder / "mds"});
  ReadBack read(folder / "mds");
  std::vector<std::string> names;
  for (const io::Field& field : read.record(0)) {
    names.push_back(field.name);
  }
  EXPECT_THAT(names, ElementsAre("image.bytes", "image.path", "text"));
  EXPECT_THAT(
      io::complaint_about([&] {
        convert_parquet({.files = {table_file("b")}, .columns = {"txt"}, .folder = folder / "x"});
      }),
      HasSubstr("has no column txt; it has box, "));
}

TEST(ParquetConversion, nulls_are_refused_or_filled) {
  SKIP_WITHOUT_ARROW();
  const TemporaryFolder folder;
  ParquetRequest request{.files = {table_file("nulls")}, .folder = folder / "mds"};
  EXPECT_THAT(io::complaint_about([&] { convert_parquet(request); }),
              HasSubstr("row 0 has a null in the column image.bytes"));
  EXPECT_THAT(entries(folder.path()), IsEmpty());
  request.fill_nulls = true;
  convert_parquet(request);
  ReadBack read(folder / "mds");
  EXPECT_EQ(read.text(1, "text"), "");
  EXPECT_EQ(read.text(0, "image.bytes"), "");
  EXPECT_EQ(read.text(1, "image.bytes"), "x");
  EXPECT_EQ(read.number<std::int32_t>(0, "label"), 7);
  EXPECT_EQ(read.number<std::int32_t>(1, "label"), 0);
  EXPECT_THAT(read.field(0, "tokens").shape, ElementsAre(0));
  EXPECT_THAT(read.field(1, "tokens").shape, ElementsAre(1));
}

TEST(ParquetConversion, what_has_no_form_in_mds_is_named) {
  SKIP_WITHOUT_ARROW();
  const TemporaryFolder folder;
  EXPECT_THAT(io::complaint_about([&] {
                convert_parquet({.files = {table_file("timestamp")}, .folder = folder / "mds"});
              }),
              HasSubstr("the column when is of type timestamp[us], for which MDS has no encoding"));
  EXPECT_THAT(io::complaint_about([&] {
                convert_parquet(
                    {.files = {table_file("a"), table_file("nulls")}, .folder = folder / "mds"});
              }),
              HasSubstr("nulls.parquet has the columns image.bytes bytes, "));
  EXPECT_THAT(entries(folder.path()), IsEmpty());
}

TEST(ParquetConversion, of_damaged_files_ends_with_an_error_or_whole) {
  SKIP_WITHOUT_ARROW();
  const TemporaryFolder folder;
  std::string whole;
  {
    std::ifstream file(table_file("b"), std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(file), {});
  }
  int refused = 0;
  for (std::size_t at = 4; at < whole.size(); at += 11) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 == 0 ? 0x80 : 0x7f));
    io::write(folder / "damaged.parquet", damaged);
    const std::string complaint = io::complaint_about([&] {
      convert_parquet({.files = {folder / "damaged.parquet"}, .folder = folder / "mds"});
    });
    refused += complaint.empty() ? 0 : 1;
    EXPECT_THAT(complaint, testing::AnyOf("", HasSubstr("damaged.parquet"))) << at;
    EXPECT_EQ(complaint.empty(), std::filesystem::exists(folder / "mds")) << at;
    std::filesystem::remove_all(folder / "mds");
  }
  EXPECT_GT(refused, 0);
}

TEST(ParquetConversion, files_that_are_no_parquet_leave_nothing) {
  SKIP_WITHOUT_ARROW();
  const TemporaryFolder folder;
  io::write(folder / "text.parquet", "PAR1 and no more");
  std::string whole;
  {
    std::ifstream file(table_file("a"), std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (const std::string& broken : {folder / "text.parquet", folder / "none.parquet"}) {
    EXPECT_THAT(io::complaint_about(
                    [&] { convert_parquet({.files = {broken}, .folder = folder / "mds"}); }),
                StartsWith("cannot read " + broken));
    EXPECT_FALSE(std::filesystem::exists(folder / "mds"));
  }
  mkfifo((folder / "pipe.parquet").c_str(), 0600);
  EXPECT_THAT(io::complaint_about([&] {
                convert_parquet({.files = {folder / "pipe.parquet"}, .folder = folder / "mds"});
              }),
              HasSubstr("pipe.parquet: it is a folder, a pipe"));
  for (std::size_t cut = 0; cut < whole.size(); cut += 997) {
    io::write(folder / "cut.parquet", whole.substr(0, cut));
    EXPECT_NE(io::complaint_about([&] {
                convert_parquet({.files = {folder / "cut.parquet"}, .folder = folder / "mds"});
              }),
              "");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "mds"));
  EXPECT_FALSE(std::filesystem::exists(folder / "mds-unfinished"));
}

}  // namespace
}  // namespace sprat::cli
