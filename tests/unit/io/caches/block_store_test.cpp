// Blocks on a disk: shared by processes, damaged, killed in the midst, a disk that is full.
#include "io/caches/block_store.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/bytes.hpp"
#include "tests/unit/io/caches/blocks.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

BlockStoreOptions store_options(
    const TemporaryFolder& folder, std::uint64_t slots,
    std::function<bool(const BlockKey&)> wants = [](const BlockKey&) { return true; }) {
  return {.folder = folder / "cache",
          .capacity_bytes = slots * cache_block_bytes,
          .wants = std::move(wants)};
}

BlockKey stored_key(std::uint64_t block, int file = 1) {
  return {.file = made_up_file(file), .block = block};
}

/// What a fetch of the whole block says; the bytes are compared if it says that they are there.
FetchOutcome fetch_whole_block(BlockStore& store, const BlockKey& key,
                               std::size_t bytes = cache_block_bytes) {
  std::vector<std::byte> into(bytes);
  const FetchOutcome outcome = store.fetch(key, 0, into);
  if (outcome == FetchOutcome::fetched) {
    EXPECT_TRUE(same_bytes(into, made_up_block(key, bytes))) << key.block;
  }
  return outcome;
}

/// Writes over a file of the cache, as a disk does that forgets.
void overwrite_cache(const TemporaryFolder& folder, const char* name, std::uint64_t offset,
                     std::span<const std::byte> bytes) {
  const int file = ::open((folder / "cache" + "/" + name).c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
            static_cast<ssize_t>(bytes.size()));
  ::close(file);
}

TEST(BlockStore, gives_back_what_was_stored_whole_and_in_part) {
  const TemporaryFolder folder;
  const auto store = BlockStore::try_open(store_options(folder, 10));
  ASSERT_TRUE(store);
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4097}, std::size_t{cache_block_bytes}}) {
    const BlockKey key = stored_key(bytes);
    EXPECT_EQ(fetch_whole_block(*store, key, bytes), FetchOutcome::absent);
    EXPECT_EQ(store->store(key, made_up_block(key, bytes)), StoreOutcome::stored);
    EXPECT_EQ(store->store(key, made_up_block(key, bytes)), StoreOutcome::was_there);
    EXPECT_TRUE(store->holds(key));
    EXPECT_EQ(fetch_whole_block(*store, key, bytes), FetchOutcome::fetched);
    const std::vector<std::byte> all = made_up_block(key, bytes);
    std::vector<std::byte> part(bytes - bytes / 3);
    EXPECT_EQ(store->fetch(key, bytes / 3, part), FetchOutcome::fetched);
    EXPECT_EQ(std::memcmp(part.data(), all.data() + bytes / 3, part.size()), 0);
    EXPECT_EQ(store->fetch(key, bytes / 3 + 1, part), FetchOutcome::absent) << "beyond its end";
  }
}

TEST(BlockStore, finds_everything_again_after_a_restart) {
  const TemporaryFolder folder;
  for (int run = 0; run < 3; ++run) {
    const auto store = BlockStore::try_open(store_options(folder, 20));
    ASSERT_TRUE(store);
    for (std::uint64_t block = 0; block < 10; ++block) {
      EXPECT_EQ(fetch_whole_block(*store, stored_key(block)),
                run == 0 ? FetchOutcome::absent : FetchOutcome::fetched);
      store->store(stored_key(block), made_up_block(stored_key(block)));
    }
  }
}

TEST(BlockStore, evicts_nothing_when_it_is_full) {
  const TemporaryFolder folder;
  const auto store = BlockStore::try_open(store_options(folder, 8));
  for (std::uint64_t block = 0; block < 20; ++block) {
    EXPECT_EQ(store->store(stored_key(block), made_up_block(stored_key(block))),
              block < 8 ? StoreOutcome::stored : StoreOutcome::no_room);
  }
  for (std::uint64_t block = 0; block < 20; ++block) {
    EXPECT_EQ(store->holds(stored_key(block)), block < 8);
  }
}

TEST(BlockStore, serves_no_block_of_which_a_part_was_not_written) {
  const TemporaryFolder folder;
  {
    const auto store = BlockStore::try_open(store_options(folder, 1));
    ASSERT_EQ(store->store(stored_key(1), made_up_block(stored_key(1))), StoreOutcome::stored);
  }
  const std::vector<std::byte> zeros(4096);
  overwrite_cache(folder, "sprat-cache.blocks", 512 * 1024, zeros);
  const auto store = BlockStore::try_open(store_options(folder, 1));
  EXPECT_EQ(fetch_whole_block(*store, stored_key(1)), FetchOutcome::damaged);
  std::vector<std::byte> part(100);
  EXPECT_EQ(store->fetch(stored_key(1), 0, part), FetchOutcome::damaged)
      << "a part that is right does not count before the whole is known to be";
  EXPECT_EQ(damaged_slots(folder / "cache"), std::vector<std::uint64_t>{0});
  EXPECT_TRUE(store->drop(stored_key(1)));
  EXPECT_EQ(fetch_whole_block(*store, stored_key(1)), FetchOutcome::absent);
  EXPECT_EQ(store->store(stored_key(1), made_up_block(stored_key(1))), StoreOutcome::stored);
  EXPECT_EQ(fetch_whole_block(*store, stored_key(1)), FetchOutcome::fetched);
}

TEST(BlockStore, takes_over_the_slot_of_a_writer_that_died) {
  const TemporaryFolder folder;
  const auto store = BlockStore::try_open(store_options(folder, 1));
  overwrite_cache(folder, "sprat-cache.index", slot_header_bytes,
                  encode_slot({.key = stored_key(7),
                               .bytes = cache_block_bytes,
                               .state = SlotState::writing,
                               .checksum = 1,
                               .generation = 5}));
  EXPECT_EQ(fetch_whole_block(*store, stored_key(7)), FetchOutcome::absent);
  EXPECT_EQ(store->store(stored_key(8), made_up_block(stored_key(8))), StoreOutcome::stored);
  EXPECT_EQ(fetch_whole_block(*store, stored_key(8)), FetchOutcome::fetched);
}

TEST(BlockStore, lets_blocks_of_another_dataset_give_way_once_there_is_no_room) {
  const TemporaryFolder folder;
  const auto of_file = [](int file) {
    return [file](const BlockKey& key) { return key.file == made_up_file(file); };
  };
  {
    const auto store = BlockStore::try_open(store_options(folder, 4, of_file(1)));
    for (std::uint64_t block = 0; block < 3; ++block) {
      store->store(stored_key(block, 1), made_up_block(stored_key(block, 1)));
    }
  }
  const auto store = BlockStore::try_open(store_options(folder, 4, of_file(2)));
  EXPECT_EQ(store->store(stored_key(0, 2), made_up_block(stored_key(0, 2))), StoreOutcome::stored);
  for (std::uint64_t block = 0; block < 3; ++block) {
    EXPECT_EQ(fetch_whole_block(*store, stored_key(block, 1)), FetchOutcome::fetched)
        << "there was room";
  }
  for (std::uint64_t block = 1; block < 4; ++block) {
    EXPECT_EQ(store->store(stored_key(block, 2), made_up_block(stored_key(block, 2))),
              StoreOutcome::stored);
  }
  EXPECT_EQ(store->store(stored_key(9, 2), made_up_block(stored_key(9, 2))), StoreOutcome::no_room);
  for (std::uint64_t block = 0; block < 4; ++block) {
    EXPECT_EQ(fetch_whole_block(*store, stored_key(block, 2)), FetchOutcome::fetched);
    EXPECT_EQ(fetch_whole_block(*store, stored_key(block, 1)), FetchOutcome::absent);
  }
}

TEST(BlockStore, keeps_what_two_datasets_want_that_are_open_at_once) {
  const TemporaryFolder folder;
  const auto of_file = [](int file) {
    return [file](const BlockKey& key) { return key.file == made_up_file(file); };
  };
  for (int run = 0; run < 2; ++run) {
    const auto train = BlockStore::try_open(store_options(folder, 4, of_file(1)));
    const auto held_out = BlockStore::try_open(store_options(folder, 4, of_file(2)));
    for (std::uint64_t block = 0; block < 2; ++block) {
      train->store(stored_key(block, 1), made_up_block(stored_key(block, 1)));
      held_out->store(stored_key(block, 2), made_up_block(stored_key(block, 2)));
    }
    EXPECT_EQ(train->store(stored_key(5, 1), made_up_block(stored_key(5, 1))),
              StoreOutcome::no_room);
    EXPECT_EQ(held_out->store(stored_key(5, 2), made_up_block(stored_key(5, 2))),
              StoreOutcome::no_room);
    for (std::uint64_t block = 0; block < 2; ++block) {
      EXPECT_EQ(fetch_whole_block(*held_out, stored_key(block, 1)), FetchOutcome::fetched);
      EXPECT_EQ(fetch_whole_block(*train, stored_key(block, 2)), FetchOutcome::fetched);
    }
  }
}

TEST(BlockStore, begins_anew_with_another_capacity_unless_somebody_uses_it) {
  const TemporaryFolder folder;
  {
    const auto store = BlockStore::try_open(store_options(folder, 4));
    store->store(stored_key(1), made_up_block(stored_key(1)));
    const auto other = BlockStore::try_open(store_options(folder, 9));
    ASSERT_TRUE(other);
    EXPECT_EQ(other->shape().slots(), 4u);
    EXPECT_EQ(fetch_whole_block(*other, stored_key(1)), FetchOutcome::fetched);
  }
  const auto store = BlockStore::try_open(store_options(folder, 9));
  EXPECT_EQ(store->shape().slots(), 9u);
  EXPECT_EQ(fetch_whole_block(*store, stored_key(1)), FetchOutcome::absent);
}

TEST(BlockStore, begins_anew_where_its_files_are_cut_or_swapped) {
  for (const char* name : {"sprat-cache.index", "sprat-cache.blocks"}) {
    const TemporaryFolder folder;
    {
      const auto store = BlockStore::try_open(store_options(folder, 4));
      store->store(stored_key(1), made_up_block(stored_key(1)));
    }
    std::filesystem::resize_file(folder / "cache" + "/" + name, 5000);
    const auto store = BlockStore::try_open(store_options(folder, 4));
    ASSERT_TRUE(store) << name;
    EXPECT_EQ(fetch_whole_block(*store, stored_key(1)), FetchOutcome::absent) << name;
    EXPECT_EQ(store->store(stored_key(1), made_up_block(stored_key(1))), StoreOutcome::stored);
    EXPECT_EQ(fetch_whole_block(*store, stored_key(1)), FetchOutcome::fetched);
  }
}

TEST(BlockStore, says_what_is_wrong_with_a_folder) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "no folder";
  const auto complaint = [](const BlockStoreOptions& options) -> std::string {
    try {
      BlockStore::try_open(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint({.folder = folder / "file" + "/cache", .capacity_bytes = 1 << 20}),
              testing::HasSubstr(folder / "file" + "/cache"));
  EXPECT_THAT(complaint({.folder = folder / "cache", .capacity_bytes = 1000}),
              testing::HasSubstr("1000 bytes"));
  // A pipe of the cache's name: to open it would wait for a writer.
  std::filesystem::create_directory(folder / "pipes");
  ASSERT_EQ(::mkfifo((folder / "pipes/sprat-cache.lock").c_str(), 0600), 0);
  EXPECT_THAT(complaint({.folder = folder / "pipes", .capacity_bytes = 1 << 20}),
              testing::HasSubstr("no file"));
}

TEST(BlockStore, gives_back_what_it_took_of_a_disk_that_is_too_small) {
  // The process's limit of file sizes stands in for a full disk.
  const TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 3 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(BlockStore::try_open(store_options(folder, 10)), Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  for (const char* name : {"sprat-cache.index", "sprat-cache.blocks"}) {
    EXPECT_EQ(std::filesystem::file_size(folder / "cache" + "/" + name), 0u) << name;
  }
  EXPECT_TRUE(BlockStore::try_open(store_options(folder, 10)));
}

TEST(BlockStore, notices_that_its_files_were_removed) {
  const TemporaryFolder folder;
  const auto store = BlockStore::try_open(store_options(folder, 4));
  EXPECT_TRUE(store->still_there());
  std::filesystem::remove_all(folder / "cache");
  EXPECT_FALSE(store->still_there());
  const auto next = BlockStore::try_open(store_options(folder, 4));
  ASSERT_TRUE(next) << "the next one begins anew";
  EXPECT_TRUE(next->still_there());
}

/// A process that stores blocks until it is ended; exits with 0 once all are tried.
pid_t fork_block_writer(const BlockStoreOptions& options, std::uint64_t blocks, unsigned seed) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      auto store = BlockStore::try_open(options);
      while (!store) {
        store = BlockStore::try_open(options);
      }
      std::mt19937 engine(seed);
      for (std::uint64_t turn = 0; turn < blocks; ++turn) {
        const BlockKey key = stored_key(engine() % blocks);
        while (store->store(key, made_up_block(key)) == StoreOutcome::busy) {
        }
      }
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  return child;
}

TEST(BlockStore, holds_each_block_once_whichever_process_stores_it) {
  const TemporaryFolder folder;
  constexpr std::uint64_t blocks = 24;
  const BlockStoreOptions options = store_options(folder, 3 * blocks);
  std::vector<pid_t> writers;
  for (unsigned writer = 0; writer < 3; ++writer) {
    writers.push_back(fork_block_writer(options, blocks, writer));
  }
  for (const pid_t writer : writers) {
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  const auto store = BlockStore::try_open(options);
  std::uint64_t held = 0;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    held += store->holds(stored_key(block)) ? 1 : 0;
    EXPECT_EQ(fetch_whole_block(*store, stored_key(block)),
              store->holds(stored_key(block)) ? FetchOutcome::fetched : FetchOutcome::absent);
  }
  EXPECT_GT(held, blocks / 2);
  EXPECT_EQ(describe_block_store(folder / "cache").blocks, held);
  EXPECT_TRUE(damaged_slots(folder / "cache").empty());
}

TEST(BlockStore, serves_whole_blocks_only_however_often_writers_are_killed) {
  const TemporaryFolder folder;
  constexpr std::uint64_t blocks = 32;
  const BlockStoreOptions options = store_options(folder, blocks);
  std::mt19937 engine(1);
  // This one stays open, so the dead writers' slots are not swept but found by their locks.
  const auto reader = BlockStore::try_open(options);
  ASSERT_TRUE(reader);
  for (unsigned round = 0; round < 30; ++round) {
    const pid_t writer = fork_block_writer(options, blocks, round);
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::microseconds(engine() % 20'000);
    while (std::chrono::steady_clock::now() < end) {
      EXPECT_NE(fetch_whole_block(*reader, stored_key(engine() % blocks)), FetchOutcome::damaged);
    }
    kill(writer, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    for (std::uint64_t block = 0; block < blocks; ++block) {
      EXPECT_NE(fetch_whole_block(*reader, stored_key(block)), FetchOutcome::damaged);
    }
  }
  for (std::uint64_t block = 0; block < blocks; ++block) {
    const StoreOutcome outcome = reader->store(stored_key(block), made_up_block(stored_key(block)));
    EXPECT_TRUE(outcome == StoreOutcome::stored || outcome == StoreOutcome::was_there) << block;
  }
  const BlockStoreInfo info = describe_block_store(folder / "cache");
  EXPECT_EQ(info.blocks, blocks);
  EXPECT_EQ(info.unfinished, 0u);
}

TEST(BlockStore, is_described_and_cleared_for_people) {
  const TemporaryFolder folder;
  EXPECT_THROW(describe_block_store(folder / "cache"), Error);
  EXPECT_THROW(clear_block_store(folder / "cache"), Error);
  {
    const auto store = BlockStore::try_open(store_options(folder, 4));
    store->store(stored_key(1, 1), made_up_block(stored_key(1, 1), 1000));
    store->store(stored_key(1, 2), made_up_block(stored_key(1, 2)));
    const BlockStoreInfo info = describe_block_store(folder / "cache");
    EXPECT_EQ(info.blocks, 2u);
    EXPECT_EQ(info.bytes, 1000 + cache_block_bytes);
    EXPECT_EQ(info.files, 2u);
    EXPECT_TRUE(info.in_use);
    EXPECT_THROW(clear_block_store(folder / "cache"), Error) << "while it is used";
    EXPECT_TRUE(store->holds(stored_key(1, 1)));
  }
  EXPECT_FALSE(describe_block_store(folder / "cache").in_use);
  EXPECT_GE(clear_block_store(folder / "cache"), 4 * cache_block_bytes);
  EXPECT_FALSE(std::filesystem::exists(folder / "cache"));
}

TEST(BlockStore, leaves_what_is_not_its_own_when_it_is_cleared) {
  const TemporaryFolder folder;
  BlockStore::try_open(store_options(folder, 4));
  std::ofstream(folder / "cache/notes") << "mine";
  clear_block_store(folder / "cache");
  EXPECT_EQ(entries(folder / "cache"), std::vector<std::string>{"notes"});
}

}  // namespace
}  // namespace sprat::io
