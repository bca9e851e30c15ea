// Rows that lie in the page cache are copied, once each, and those that do not are told.
#include "io/loader/cached_rows.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>
#include <thread>

#include "io/readers/cached_read.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

constexpr std::uint64_t row_bytes = 100, file_bytes = 10'000;
const struct stat stat_of_nothing = {};

char byte_at(std::uint64_t file, std::uint64_t offset) {
  return static_cast<char>((offset * 7 + file) % 251);
}

/// Two files, and a batch of rows of them.
class CachedRowsOfFiles : public testing::Test {
 protected:
  CachedRowsOfFiles() {
    for (std::uint64_t file = 0; file < 2; ++file) {
      const std::string path = folder_ / ("file" + std::to_string(file));
      std::string bytes(file_bytes, '\0');
      for (std::uint64_t at = 0; at < file_bytes; ++at) {
        bytes[at] = byte_at(file, at);
      }
      std::ofstream(path, std::ios::binary) << bytes;
      files_.push_back(
          std::make_shared<const OpenFile>(::open(path.c_str(), O_RDONLY), stat_of_nothing));
    }
  }
  void SetUp() override {
    std::byte one{};
    if (try_cached_read(files_[0]->descriptor(), 0, {&one, 1}) == CachedTry::impossible) {
      GTEST_SKIP() << "the temporary folder's file system knows no reads without waiting";
    }
  }

  void add(std::vector<Extent> row) {
    for (const Extent& extent : row) {
      const bool opens = extent.file < files_.size();
      rows_.pieces.push_back({.file = opens ? files_[extent.file].get() : nullptr,
                              .target = static_cast<Target>(extent.file),
                              .extent = extent});
    }
    rows_.behind.push_back(static_cast<std::uint32_t>(rows_.pieces.size()));
  }
  RowCopies& copies() {
    batch_.samples.resize(rows_.behind.size());
    batch_.rows = MemoryPool::make(0)->take(row_bytes * batch_.samples.size());
    copies_.emplace(batch_, std::move(rows_), luck_, observer_);
    return *copies_;
  }
  void expect_row(std::size_t row, const std::vector<Extent>& extents) {
    std::string bytes;
    for (const Extent& extent : extents) {
      for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes; ++at) {
        bytes += byte_at(extent.file, at);
      }
    }
    const std::span<const std::byte> is = batch_.samples[row].bytes;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(is.data()), is.size()), bytes) << row;
    EXPECT_EQ(is.data(), batch_.row(row).data());
  }

  TemporaryFolder folder_;
  std::vector<std::shared_ptr<const OpenFile>> files_;
  RowCopies::Rows rows_;
  DataBatch::Impl batch_;
  std::shared_ptr<CacheLuck> luck_ = std::make_shared<CacheLuck>();
  Observer observer_{1 << 20};
  std::optional<RowCopies> copies_;
};

struct AllCopied {
  std::size_t rows = 0, told_missing = 0;
};
AllCopied copy_all(RowCopies& copies) {
  AllCopied all;
  while (copies.has_open_rows()) {
    const RowCopies::Copied copied = copies.copy();
    all.rows += copied.rows;
    all.told_missing += copied.leaves_missing ? 1 : 0;
  }
  return all;
}

TEST_F(CachedRowsOfFiles, come_as_the_files_have_them) {
  const std::vector<Extent> within = {{.file = 1, .offset = 300, .bytes = row_bytes}};
  const std::vector<Extent> across = {{.file = 0, .offset = file_bytes - 30, .bytes = 30},
                                      {.file = 1, .offset = 0, .bytes = 70}};
  const std::vector<Extent> shorter = {{.file = 0, .offset = 5, .bytes = 20}};
  add(within), add(across), add(shorter);
  const AllCopied all = copy_all(copies());
  EXPECT_EQ(all.rows, 3u);
  EXPECT_EQ(all.told_missing, 0u);
  expect_row(0, within), expect_row(1, across), expect_row(2, shorter);
}

TEST_F(CachedRowsOfFiles, are_counted_as_reads_of_their_targets) {
  add({{.file = 0, .offset = 0, .bytes = 100}});
  add({{.file = 0, .offset = 100, .bytes = 100}});
  add({{.file = 1, .offset = 0, .bytes = 60}, {.file = 0, .offset = 0, .bytes = 40}});
  copy_all(copies());
  const Interval interval = observer_.take({});
  EXPECT_EQ(interval.bytes.page_cache, 300u);
  EXPECT_EQ(interval.bytes.file_system, 0u);
  ASSERT_EQ(interval.targets.size(), 2u);
  EXPECT_EQ(interval.targets[0].reads, 3u);
  EXPECT_EQ(interval.targets[0].bytes, 240u);
  EXPECT_EQ(interval.targets[1].reads, 1u);
  EXPECT_EQ(interval.targets[1].bytes, 60u);
}

TEST_F(CachedRowsOfFiles, that_do_not_come_are_missing_with_all_their_extents) {
  const Extents behind_the_end = {{.file = 0, .offset = 0, .bytes = 10},
                                  {.file = 1, .offset = file_bytes - 10, .bytes = 90}};
  const Extents of_no_file = {{.file = 2, .offset = 0, .bytes = 100}};
  add({{.file = 0, .offset = 0, .bytes = 100}});
  add(behind_the_end);
  add({{.file = 1, .offset = 0, .bytes = 100}});
  add(of_no_file);
  RowCopies& all_rows = copies();
  const AllCopied all = copy_all(all_rows);
  EXPECT_EQ(all.rows, 2u);
  EXPECT_EQ(all.told_missing, 1u);
  EXPECT_THAT(all_rows.missing(), testing::ElementsAre(1, 3));
  EXPECT_EQ(all_rows.extents(1), behind_the_end);
  EXPECT_EQ(all_rows.extents(3), of_no_file);
}

TEST_F(CachedRowsOfFiles, are_each_copied_by_one_of_those_who_help) {
  constexpr std::size_t rows = 3000;
  for (std::size_t row = 0; row < rows; ++row) {
    // Every hundredth lies behind the file's end.
    const std::uint64_t offset = row % 100 == 99 ? file_bytes : row * 3 % (file_bytes - row_bytes);
    add({{.file = static_cast<std::uint32_t>(row % 2), .offset = offset, .bytes = row_bytes}});
  }
  RowCopies& all_rows = copies();
  AllCopied here, there;
  std::thread other([&] { there = copy_all(all_rows); });
  here = copy_all(all_rows);
  other.join();
  EXPECT_EQ(here.rows + there.rows, rows - rows / 100);
  EXPECT_EQ(here.told_missing + there.told_missing, 1u);
  EXPECT_EQ(all_rows.missing().size(), rows / 100);
  for (std::size_t row = 0; row < rows; ++row) {
    if (row % 100 != 99) {
      expect_row(row, all_rows.extents(row));
    }
  }
}

TEST_F(CachedRowsOfFiles, are_not_tried_any_more_when_luck_is_gone) {
  for (int row = 0; row < 200; ++row) {
    add({{.file = 0, .offset = file_bytes, .bytes = row_bytes}});
  }
  add({{.file = 0, .offset = 0, .bytes = row_bytes}});
  RowCopies& all_rows = copies();
  const AllCopied all = copy_all(all_rows);
  EXPECT_EQ(all.rows, 0u) << "the last row lies in the cache, but nobody looks for it any more";
  EXPECT_EQ(all.told_missing, 1u);
  EXPECT_EQ(all_rows.missing().size(), 201u);
  EXPECT_EQ(luck_->tries(), 1u);
}

TEST(CacheLuck, tries_all_one_or_none) {
  CacheLuck luck;
  EXPECT_GT(luck.tries(), 1'000'000u) << "at first";
  luck.tried(0, 64);
  EXPECT_EQ(luck.tries(), 1u);
  EXPECT_FALSE(luck.good());
  // Files that have become cached are found out in a few batches.
  int batches = 0;
  for (; luck.tries() < 64; ++batches) {
    luck.tried(luck.tries(), 0);
  }
  EXPECT_LE(batches, 8);
  // Nine of ten in the cache: all are tried. Half of them: one.
  for (int batch = 0; batch < 20; ++batch) {
    luck.tried(58, 6);
  }
  EXPECT_GE(luck.tries(), 64u);
  for (int batch = 0; batch < 20; ++batch) {
    luck.tried(32, 32);
  }
  EXPECT_EQ(luck.tries(), 1u);
  luck.refused();
  EXPECT_EQ(luck.tries(), 0u);
}

}  // namespace
}  // namespace sprat::io
