// The threads of a host's cache.
#include "io/caches/host_cache.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/unit/io/caches/blocks.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

HostCacheOptions cache_in(const std::string& folder, std::uint64_t slots) {
  return {.store = {.folder = folder,
                    .capacity_bytes = slots * cache_block_bytes,
                    .wants = [](const BlockKey&) { return true; }}};
}

BlockKey cached_key(std::uint64_t block) { return {.file = made_up_file(1), .block = block}; }

/// What fetches told, in any order.
class FetchesTold {
 public:
  HostCache::Fetched next() {
    return [this](bool there) {
      const std::lock_guard lock(mutex_);
      (there ? there_ : not_there_) += 1;
      changed_.notify_all();
    };
  }
  bool wait_for(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return there_ + not_there_ == count; });
  }
  int there() const { return there_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int there_ = 0, not_there_ = 0;
};

TEST(HostCache, fetches_what_was_offered) {
  const TemporaryFolder folder;
  HostCache cache(cache_in(folder / "cache", 8));
  ASSERT_TRUE(cache.wait_opened(30s));
  for (std::uint64_t block = 0; block < 4; ++block) {
    const auto bytes = shared_block(cached_key(block));
    EXPECT_TRUE(cache.offer(cached_key(block), *bytes, bytes));
  }
  ASSERT_TRUE(cache.wait_idle(30s));
  FetchesTold told;
  std::vector<std::vector<std::byte>> memory(5, std::vector<std::byte>(cache_block_bytes));
  for (std::uint64_t block = 0; block < 5; ++block) {
    EXPECT_EQ(cache.holds(cached_key(block)), block < 4);
    EXPECT_TRUE(cache.fetch(cached_key(block), 0, memory[block], told.next()));
  }
  ASSERT_TRUE(told.wait_for(5));
  EXPECT_EQ(told.there(), 4);
  for (std::uint64_t block = 0; block < 4; ++block) {
    EXPECT_EQ(memory[block], made_up_block(cached_key(block)));
  }
  ASSERT_TRUE(cache.wait_idle(30s));
  EXPECT_EQ(cache.counts().fetched_bytes, 4 * cache_block_bytes);
  EXPECT_EQ(cache.counts().absent, 1u);
  EXPECT_EQ(cache.counts().stored_blocks, 4u);
}

TEST(HostCache, takes_no_more_than_its_bound_at_once) {
  const TemporaryFolder folder;
  HostCacheOptions options = cache_in(folder / "cache", 8);
  options.in_flight_bytes = 2 * cache_block_bytes;
  HostCache cache(options);
  ASSERT_TRUE(cache.wait_opened(30s));
  const auto bytes = shared_block(cached_key(0));
  // A slab whose owner takes it back late: the thread that stores waits for it.
  std::promise<void> goes_back;
  std::shared_ptr<const void> late(
      bytes->data(), [bytes, when = goes_back.get_future().share()](const void*) { when.wait(); });
  const auto offered = [&](std::uint64_t block, std::shared_ptr<const void> owner) {
    return cache.offer(cached_key(block), *bytes, std::move(owner));
  };
  EXPECT_TRUE(offered(0, std::move(late)));
  EXPECT_TRUE(offered(1, bytes));
  EXPECT_FALSE(offered(2, bytes));
  EXPECT_EQ(cache.counts().refused_blocks, 1u);
  goes_back.set_value();
  ASSERT_TRUE(cache.wait_idle(30s));
  EXPECT_TRUE(offered(2, bytes));
  ASSERT_TRUE(cache.wait_idle(30s));
  EXPECT_EQ(cache.counts().stored_blocks, 3u);
  EXPECT_EQ(bytes.use_count(), 1) << "the slabs have gone back";
}

TEST(HostCache, turns_itself_off_where_the_folder_cannot_be_and_the_loader_goes_on) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "no folder";
  HostCache cache(cache_in(folder / "file" + "/cache", 8));
  ASSERT_TRUE(cache.wait_opened(30s));
  EXPECT_NE(cache.off_because(), "");
  const auto bytes = shared_block(cached_key(0));
  std::vector<std::byte> into(cache_block_bytes);
  EXPECT_FALSE(cache.offer(cached_key(0), *bytes, bytes));
  EXPECT_FALSE(cache.holds(cached_key(0)));
  EXPECT_FALSE(cache.fetch(cached_key(0), 0, into, [](bool) { FAIL(); }));
}

TEST(HostCache, turns_itself_off_when_the_folder_is_removed) {
  const TemporaryFolder folder;
  HostCache cache(cache_in(folder / "cache", 8));
  ASSERT_TRUE(cache.wait_opened(30s));
  const auto bytes = shared_block(cached_key(0));
  ASSERT_TRUE(cache.offer(cached_key(0), *bytes, bytes));
  ASSERT_TRUE(cache.wait_idle(30s));
  std::filesystem::remove_all(folder / "cache");
  ASSERT_TRUE(cache.offer(cached_key(1), *bytes, bytes));
  ASSERT_TRUE(cache.wait_idle(30s));
  EXPECT_NE(cache.off_because(), "");
  EXPECT_FALSE(cache.holds(cached_key(0)));
  EXPECT_FALSE(std::filesystem::exists(folder / "cache")) << "it makes no new one";
}

TEST(HostCache, gives_up_a_block_that_is_not_as_it_was_written) {
  const TemporaryFolder folder;
  HostCache cache(cache_in(folder / "cache", 1));
  ASSERT_TRUE(cache.wait_opened(30s));
  const auto bytes = shared_block(cached_key(0));
  ASSERT_TRUE(cache.offer(cached_key(0), *bytes, bytes));
  ASSERT_TRUE(cache.wait_idle(30s));
  {
    std::fstream file(folder / "cache/sprat-cache.blocks", std::ios::in | std::ios::out);
    file.seekp(1000);
    file << "another disk's";
  }
  FetchesTold told;
  std::vector<std::byte> into(cache_block_bytes);
  ASSERT_TRUE(cache.fetch(cached_key(0), 0, into, told.next()));
  ASSERT_TRUE(told.wait_for(1));
  EXPECT_EQ(told.there(), 0);
  ASSERT_TRUE(cache.wait_idle(30s));
  EXPECT_FALSE(cache.holds(cached_key(0)));
  EXPECT_EQ(cache.counts().damaged, 1u);
  EXPECT_EQ(cache.off_because(), "") << "one block is no reason";
}

TEST(HostCache, tells_of_every_fetch_it_took_before_it_ends) {
  const TemporaryFolder folder;
  FetchesTold told;
  int taken = 0;
  std::vector<std::vector<std::byte>> memory(40, std::vector<std::byte>(cache_block_bytes));
  {
    HostCache cache(cache_in(folder / "cache", 8));
    ASSERT_TRUE(cache.wait_opened(30s));
    const auto bytes = shared_block(cached_key(0));
    ASSERT_TRUE(cache.offer(cached_key(0), *bytes, bytes));
    ASSERT_TRUE(cache.wait_idle(30s));
    for (std::vector<std::byte>& into : memory) {
      taken += cache.fetch(cached_key(0), 0, into, told.next()) ? 1 : 0;
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_TRUE(told.wait_for(taken));
  EXPECT_EQ(told.there(), taken);
}

TEST(HostCache, is_shared_by_those_who_open_one_folder) {
  const TemporaryFolder folder;
  HostCache one(cache_in(folder / "cache", 8)), other(cache_in(folder / "cache", 8));
  ASSERT_TRUE(one.wait_opened(30s) && other.wait_opened(30s));
  EXPECT_EQ(one.off_because() + other.off_because(), "");
  const auto bytes = shared_block(cached_key(3));
  ASSERT_TRUE(one.offer(cached_key(3), *bytes, bytes));
  ASSERT_TRUE(one.wait_idle(30s));
  EXPECT_TRUE(other.holds(cached_key(3)));
}

}  // namespace
}  // namespace sprat::io
