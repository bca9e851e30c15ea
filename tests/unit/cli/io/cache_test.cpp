// What `sprat io cache` says of a folder, and what it refuses.
#include "cli/io/cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/caches/block_store.hpp"
#include "io/caches/slot_table.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/caches/blocks.hpp"
#include "tests/unit/io/dataset/written.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::cli {
namespace {

using testing::HasSubstr;

/// A folder in which two blocks are kept.
std::unique_ptr<io::BlockStore> filled(const TemporaryFolder& folder) {
  auto store = io::BlockStore::try_open(
      {.folder = folder / "cache", .capacity_bytes = 8 * io::cache_block_bytes, .wants = nullptr});
  for (std::uint64_t block = 0; block < 2; ++block) {
    const io::BlockKey key{.file = io::made_up_file(1), .block = block};
    store->store(key, io::made_up_block(key));
  }
  return store;
}

TEST(IoCache, says_how_much_is_kept) {
  const TemporaryFolder folder;
  filled(folder);
  const IoCacheAnswer answer = answer_io_cache({.folder = folder / "cache"});
  EXPECT_THAT(answer.text, HasSubstr("8 MiB in 8 blocks"));
  EXPECT_THAT(answer.text, HasSubstr("2 MiB in 2 blocks of 1 files"));
  const auto json =
      nlohmann::json::parse(answer_io_cache({.folder = folder / "cache", .as_json = true}).text);
  EXPECT_EQ(json["bytes"], 2 * io::cache_block_bytes);
  EXPECT_EQ(json["in_use"], false);
}

TEST(IoCache, a_folder_may_be_named_in_no_encoding) {
  const TemporaryFolder folder;
  filled(folder);
  std::filesystem::rename(folder / "cache", folder / "\xff");
  for (const bool clear : {false, true}) {
    const IoCacheAnswer answer =
        answer_io_cache({.folder = folder / "\xff", .clear = clear, .as_json = true});
    EXPECT_THAT(nlohmann::json::parse(answer.text)["folder"].get<std::string>(),
                HasSubstr("\xef\xbf\xbd"));
  }
}

TEST(IoCache, finds_blocks_that_are_damaged) {
  const TemporaryFolder folder;
  filled(folder);
  EXPECT_FALSE(answer_io_cache({.folder = folder / "cache", .check = true}).damaged);
  std::fstream(folder / "cache/sprat-cache.blocks", std::ios::in | std::ios::out)
      << std::string(8 * io::cache_block_bytes, 'x');
  const IoCacheAnswer answer = answer_io_cache({.folder = folder / "cache", .check = true});
  EXPECT_TRUE(answer.damaged);
  EXPECT_THAT(answer.text, HasSubstr("2 blocks are not as they were written"));
}

TEST(IoCache, of_another_length_than_it_says_is_damaged) {
  const TemporaryFolder folder;
  filled(folder);
  const io::SlotTableShape larger{.buckets = std::uint64_t{1} << 24, .bucket_slots = 32};
  const auto header = io::encode_slot_header(larger);
  std::fstream(folder / "cache/sprat-cache.index", std::ios::in | std::ios::out)
      .write(reinterpret_cast<const char*>(header.data()), std::ssize(header));
  EXPECT_THAT(io::complaint_about([&] { answer_io_cache({.folder = folder / "cache"}); }),
              testing::AllOf(HasSubstr("is damaged"), HasSubstr("--clear")));
}

TEST(IoCache, is_cleared_unless_it_is_in_use) {
  const TemporaryFolder folder;
  {
    const auto store = filled(folder);
    EXPECT_THAT(answer_io_cache({.folder = folder / "cache"}).text, HasSubstr("in use"));
    EXPECT_THROW(answer_io_cache({.folder = folder / "cache", .clear = true}), Error);
  }
  EXPECT_THAT(answer_io_cache({.folder = folder / "cache", .clear = true}).text,
              HasSubstr("free again"));
  EXPECT_FALSE(std::filesystem::exists(folder / "cache"));
  EXPECT_THROW(answer_io_cache({.folder = folder / "cache"}), Error);
}

TEST(IoCache, takes_its_options) {
  const TemporaryFolder folder;
  filled(folder);
  CLI::App app;
  const Action action = prepare_io_cache(app);
  EXPECT_THROW(app.parse("--check --clear " + (folder / "cache")), CLI::ParseError);
  EXPECT_THROW(app.parse(""), CLI::ParseError);
  app.parse((folder / "cache") + " --clear --json");
  testing::internal::CaptureStdout();
  EXPECT_EQ(action(), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("freed_bytes"));
}

}  // namespace
}  // namespace sprat::cli
