// Requests that lie near, those that fill a cache, and what becomes of them; the file system is
// made of nothing but bytes, and slow.
#include "io/loader/near_reads.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t near_file_bytes = 5 * cache_block_bytes + 1000;

std::byte byte_of(const Extent& extent, std::uint64_t at) {
  return static_cast<std::byte>((extent.offset + at) * 7 / 3 + extent.file);
}

/// Reads as the fetcher does: near if it can be, else the file, with fills.
class NearReader {
 public:
  NearReader(const std::string& folder, std::uint64_t blocks)
      : caches_(std::make_shared<BlockCaches>(
            BlockCachesOptions{.folder = folder,
                               .capacity_bytes = blocks * cache_block_bytes,
                               .files = {{.key = {.high = 1, .low = 2}, .bytes = near_file_bytes},
                                         {.key = {.high = 3, .low = 4}, .bytes = near_file_bytes}},
                               .peers = nullptr,
                               .peer_options = {}})),
        near_({.caches = caches_,
               .pool = MemoryPool::make(1 << 26),
               .fill_bytes = 16 * cache_block_bytes,
               .alignment = 512,
               .notice = [] {}}) {
    EXPECT_TRUE(caches_->wait_idle(30s));
  }

  /// Where the bytes came from; `file_gives` of a fill is what its read brings.
  BlockSource read(const Extent& extent, std::optional<std::uint64_t> file_gives = {}) {
    std::vector<std::byte> into(extent.bytes);
    const ReadStart read{.id = ++id_, .extent = extent, .into = 0};
    BlockSource source = BlockSource::file_system;
    if (near_.start(read, into)) {
      const NearReads::Brought brought = wait();
      EXPECT_EQ(brought.request, read.id);
      EXPECT_EQ(brought.bytes, within(extent));
      source = brought.source;
    } else if (const auto fill = near_.fill(read, into)) {
      ++fills_;
      EXPECT_TRUE(near_.is_fill(read.id));
      write(fill->extent, fill->into);
      const std::uint64_t there = near_.filled(read.id, file_gives.value_or(fill->extent.bytes));
      EXPECT_EQ(there, file_gives ? 0 : within(extent));
      if (there == 0) {
        EXPECT_FALSE(near_.fill(read, into)) << "next time by itself";
        write(extent, into);
      }
    } else {
      write(extent, into);
      near_.offer(extent, into, nullptr);
    }
    near_.read_from_file(1, 10s, 1);  // so slow is the file system
    for (std::uint64_t at = 0; at < within(extent); ++at) {
      if (into[at] != byte_of(extent, at)) {
        ADD_FAILURE() << "byte " << at << " of " << extent.offset << " is another one";
        break;
      }
    }
    EXPECT_TRUE(caches_->wait_idle(30s));
    return source;
  }
  int fills() const { return fills_; }
  NearReads& near() { return near_; }

 private:
  static std::uint64_t within(const Extent& extent) {
    return std::min(extent.bytes, near_file_bytes - extent.offset);
  }
  static void write(const Extent& extent, std::span<std::byte> into) {
    for (std::uint64_t at = 0; at < within(extent); ++at) {
      into[at] = byte_of(extent, at);
    }
  }
  NearReads::Brought wait() {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (std::chrono::steady_clock::now() < end) {
      const auto brought = near_.reap();
      if (!brought.empty()) {
        return brought.front();
      }
      std::this_thread::sleep_for(100us);
    }
    ADD_FAILURE() << "nothing came";
    return {};
  }

  std::shared_ptr<BlockCaches> caches_;
  NearReads near_;
  std::uint64_t id_ = 0;
  int fills_ = 0;
};

TEST(NearReads, of_short_requests_bring_whole_blocks_once) {
  const TemporaryFolder folder;
  NearReader reader(folder / "cache", 16);
  for (std::uint64_t at = 0; at + 4096 <= near_file_bytes; at += 64 << 10) {
    reader.read({.file = 0, .offset = at, .bytes = 4096});
  }
  EXPECT_EQ(reader.fills(), 5) << "one for each block that was read from";
  int near = 0;
  for (std::uint64_t at = 100; at + 4096 <= near_file_bytes; at += 64 << 10) {
    near += reader.read({.file = 0, .offset = at, .bytes = 4096}) == BlockSource::host_cache;
  }
  EXPECT_GE(near, 78) << "but for one choice in 64";
}

TEST(NearReads, of_whole_blocks_are_offered_as_they_are) {
  const TemporaryFolder folder;
  NearReader reader(folder / "cache", 16);
  const Extent extent{.file = 1, .offset = 0, .bytes = 4 * cache_block_bytes};
  EXPECT_EQ(reader.read(extent), BlockSource::file_system);
  EXPECT_EQ(reader.fills(), 0);
  EXPECT_EQ(reader.read(extent), BlockSource::host_cache);
}

TEST(NearReads, may_reach_behind_the_end_of_a_file) {
  const TemporaryFolder folder;
  NearReader reader(folder / "cache", 16);
  const Extent last{.file = 1, .offset = 5 * cache_block_bytes, .bytes = 4096};
  EXPECT_EQ(reader.read(last), BlockSource::file_system);
  EXPECT_EQ(reader.read(last), BlockSource::host_cache);
}

TEST(NearReads, whose_fill_fails_are_read_by_themselves) {
  const TemporaryFolder folder;
  NearReader reader(folder / "cache", 16);
  const Extent extent{.file = 0, .offset = 5000, .bytes = 4096};
  EXPECT_EQ(reader.read(extent, 100), BlockSource::file_system);
  EXPECT_EQ(reader.read(extent), BlockSource::file_system) << "nothing was kept";
  EXPECT_EQ(reader.read(extent), BlockSource::host_cache);
}

TEST(NearReads, have_queues_of_their_own) {
  const TemporaryFolder folder;
  NearReader reader(folder / "cache", 16);
  const Extent kept{.file = 0, .offset = 0, .bytes = 4 * cache_block_bytes};
  reader.read(kept);
  std::vector<Request> requests(2);
  requests[0] = {.id = 1, .extent = {.file = 0, .offset = 300, .bytes = 4096}, .target = 5};
  requests[1] = {.id = 2, .extent = {.file = 1, .offset = 300, .bytes = 4096}, .target = 5};
  reader.near().place(requests);
  EXPECT_EQ(requests[0].target, host_cache_target);
  EXPECT_EQ(requests[1].target, 5);
}

TEST(NearReads, without_caches_are_none) {
  NearReads near({.caches = nullptr, .pool = MemoryPool::make(1 << 20), .notice = [] {}});
  std::vector<std::byte> into(4096);
  const ReadStart read{.id = 1, .extent = {.file = 0, .offset = 0, .bytes = 4096}};
  EXPECT_FALSE(near.start(read, into));
  EXPECT_FALSE(near.fill(read, into));
  EXPECT_TRUE(near.reap().empty());
}

}  // namespace
}  // namespace sprat::io
