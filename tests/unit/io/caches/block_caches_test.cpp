// Loaders' caches as a whole, alone and between hosts, while hosts misbehave.
#include "io/caches/block_caches.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/bytes.hpp"
#include "tests/unit/io/caches/blocks.hpp"
#include "tests/unit/io/caches/mailbox_peers.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t cached_file_bytes = 20 * cache_block_bytes + 12'345;
constexpr int cached_file_count = 3;

std::vector<CachedFile> made_up_files() {
  std::vector<CachedFile> files;
  for (int file = 0; file < cached_file_count; ++file) {
    files.push_back({.key = made_up_file(file, cached_file_bytes), .bytes = cached_file_bytes});
  }
  return files;
}

/// What a file system has.
std::vector<std::byte> file_system_bytes(const Extent& extent) {
  std::vector<std::byte> bytes(extent.bytes);
  const FileKey file = made_up_file(static_cast<int>(extent.file), cached_file_bytes);
  for (std::uint64_t at = extent.offset; at < extent.offset + extent.bytes;) {
    const std::uint64_t block = at / cache_block_bytes;
    const std::vector<std::byte> whole =
        made_up_block({.file = file, .block = block}, bytes_of_block(cached_file_bytes, block));
    const std::uint64_t within = at % cache_block_bytes;
    const std::uint64_t count = std::min(whole.size() - within, extent.offset + extent.bytes - at);
    std::memcpy(bytes.data() + (at - extent.offset), whole.data() + within, count);
    at += count;
  }
  return bytes;
}

/// A host of a job, with what a loader does for each request.
class ReadingHost {
 public:
  ReadingHost(const std::string& folder, std::uint64_t slots, std::shared_ptr<BlockPeers> peers,
              PeerBlocksOptions peer_options = {})
      : caches_({.folder = folder,
                 .capacity_bytes = slots * cache_block_bytes,
                 .files = made_up_files(),
                 .peers = std::move(peers),
                 .peer_options = peer_options}) {
    caches_.set_notice([this] { note(); });
    EXPECT_TRUE(caches_.wait_idle(30s));
  }

  /// Bytes by source. What comes is compared with the files.
  std::map<BlockSource, std::uint64_t> read(const Extent& extent) {
    std::map<BlockSource, std::uint64_t> sources;
    std::uint64_t covered = extent.offset;
    for (const CachePiece& piece : caches_.lookup(extent)) {
      EXPECT_EQ(piece.extent.offset, covered);
      covered += piece.extent.bytes;
      std::vector<std::byte> into(piece.extent.bytes);
      if (piece.source != BlockSource::file_system && caches_.start(piece, into, ++tag_) &&
          wait_for(tag_)) {
        EXPECT_TRUE(same_bytes(into, file_system_bytes(piece.extent)));
        sources[piece.source] += piece.extent.bytes;
        continue;
      }
      read_file(caches_.from_file(piece.extent));
      sources[BlockSource::file_system] += piece.extent.bytes;
    }
    EXPECT_EQ(covered, extent.offset + extent.bytes);
    return sources;
  }
  /// All files in requests of 4 MiB.
  std::map<BlockSource, std::uint64_t> read_epoch() {
    std::map<BlockSource, std::uint64_t> sources;
    for (std::uint32_t file = 0; file < cached_file_count; ++file) {
      for (std::uint64_t at = 0; at < cached_file_bytes; at += 4 * cache_block_bytes) {
        const std::uint64_t bytes = std::min(4 * cache_block_bytes, cached_file_bytes - at);
        for (const auto& [source, count] : read({.file = file, .offset = at, .bytes = bytes})) {
          sources[source] += count;
        }
      }
    }
    EXPECT_TRUE(caches_.wait_idle(30s));
    return sources;
  }
  BlockCaches& caches() { return caches_; }

 private:
  void read_file(const CachePiece& piece) {
    const Extent& extent = piece.fills.value_or(piece.extent);
    const auto bytes = std::make_shared<const std::vector<std::byte>>(file_system_bytes(extent));
    caches_.read_from_file_system(extent.bytes, extent.bytes * 1us, 1);  // 1 MB/s
    caches_.offer(extent, *bytes, bytes);
  }
  void note() {
    const std::lock_guard lock(mutex_);
    noted_ = true;
    changed_.notify_all();
  }
  bool wait_for(std::uint64_t tag) {
    while (true) {
      for (const CacheDone& done : caches_.reap()) {
        EXPECT_EQ(done.tag, tag);
        return done.there;
      }
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, 60s, [this] { return noted_; })) {
        ADD_FAILURE() << "nothing was told";
        return false;
      }
      noted_ = false;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool noted_ = false;
  std::uint64_t tag_ = 0;
  BlockCaches caches_;
};

constexpr std::uint64_t cached_epoch_bytes = cached_file_count * cached_file_bytes;

TEST(BlockCaches, give_the_second_epoch_from_the_disk_of_this_host) {
  const TemporaryFolder folder;
  ReadingHost host(folder / "cache", 100, nullptr);
  EXPECT_EQ(host.read_epoch()[BlockSource::file_system], cached_epoch_bytes);
  EXPECT_EQ(host.read_epoch()[BlockSource::host_cache], cached_epoch_bytes);
  // And in part, at any place.
  EXPECT_EQ(host.read({.file = 1, .offset = 3'000'000, .bytes = 5000})[BlockSource::host_cache],
            5000u);
}

TEST(BlockCaches, answer_what_there_is_room_for_in_every_epoch_and_after_restarts) {
  const TemporaryFolder folder;
  constexpr std::uint64_t slots = 32;  // of 63 blocks
  std::vector<std::uint64_t> from_cache;
  for (int run = 0; run < 2; ++run) {
    ReadingHost host(folder / "cache", slots, nullptr);
    for (int epoch = 0; epoch < 3; ++epoch) {
      from_cache.push_back(host.read_epoch()[BlockSource::host_cache]);
    }
  }
  EXPECT_EQ(from_cache[0], 0u);
  EXPECT_GT(from_cache[1], cached_epoch_bytes / 4);
  EXPECT_LE(from_cache[1], slots * cache_block_bytes);
  for (std::size_t epoch = 2; epoch < from_cache.size(); ++epoch) {
    // One piece in 64 tries whether the file system is faster.
    EXPECT_LE(from_cache[epoch], from_cache[1] + 4 * cache_block_bytes) << epoch;
    EXPECT_GE(from_cache[epoch] + 4 * cache_block_bytes, from_cache[1]) << epoch;
  }
}

TEST(BlockCaches, widen_small_reads_to_blocks_that_are_to_be_kept) {
  const TemporaryFolder folder;
  ReadingHost host(folder / "cache", 100, nullptr);
  const Extent small{.file = 2, .offset = 2 * cache_block_bytes + 100, .bytes = 4096};
  const auto pieces = host.caches().lookup(small);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].fills,
            (Extent{.file = 2, .offset = 2 * cache_block_bytes, .bytes = cache_block_bytes}));
  const Extent at_end{.file = 2, .offset = cached_file_bytes - 10, .bytes = 10};
  EXPECT_EQ(host.caches().lookup(at_end)[0].fills,
            (Extent{.file = 2, .offset = 20 * cache_block_bytes, .bytes = 12'345}));
  host.read(small);
  EXPECT_TRUE(host.caches().wait_idle(30s));
  EXPECT_EQ(
      host.read(
          {.file = 2, .offset = 2 * cache_block_bytes, .bytes = 10'000})[BlockSource::host_cache],
      10'000u);
}

TEST(BlockCaches, refuse_bytes_beyond_a_file_and_a_capacity_of_no_block) {
  const TemporaryFolder folder;
  ReadingHost host(folder / "cache", 4, nullptr);
  EXPECT_THROW(host.caches().lookup({.file = 0, .offset = cached_file_bytes, .bytes = 1}), Error);
  EXPECT_THROW(BlockCaches({.folder = folder / "none",
                            .capacity_bytes = 1000,
                            .files = made_up_files(),
                            .peers = nullptr,
                            .peer_options = {}}),
               Error);
}

/// Hosts that share blocks, in one process.
struct SharingHosts {
  SharingHosts(const TemporaryFolder& folder, int count, std::uint64_t slots,
               std::chrono::milliseconds deadline = 20s)
      : mailboxes(std::make_shared<Mailboxes>(count)) {
    for (int host = 0; host < count; ++host) {
      const auto index = static_cast<std::size_t>(host);
      hosts.push_back(
          std::make_unique<ReadingHost>(folder / ("cache" + std::to_string(host)), slots,
                                        std::make_shared<MailboxPeers>(mailboxes, index),
                                        PeerBlocksOptions{.deadline = deadline}));
    }
  }
  void set_fault(std::size_t host, PeerFault fault) {
    const std::lock_guard lock(mailboxes->mutex);
    mailboxes->faults[host] = fault;
  }
  /// Blocks that were given have been stored.
  void settle() {
    for (const auto& sender : hosts) {
      const std::uint64_t given = sender->caches().traffic().peers.given_blocks;
      total_given += given;
    }
    const auto end = std::chrono::steady_clock::now() + 30s;
    std::uint64_t taken = 0;
    while (taken < total_given && std::chrono::steady_clock::now() < end) {
      taken = 0;
      for (const auto& host : hosts) {
        taken += host->caches().traffic().peers.taken_blocks;
      }
      std::this_thread::yield();
    }
    EXPECT_EQ(taken, total_given);
    total_given = 0;
    for (const auto& host : hosts) {
      EXPECT_TRUE(host->caches().wait_idle(30s));
    }
  }

  std::shared_ptr<Mailboxes> mailboxes;
  std::vector<std::unique_ptr<ReadingHost>> hosts;
  std::uint64_t total_given = 0;
};

TEST(BlockCaches, of_several_hosts_hold_together_what_none_could_alone) {
  const TemporaryFolder folder;
  // 63 blocks, room for 30 on each of 3 hosts.
  SharingHosts job(folder, 3, 30);
  EXPECT_EQ(job.hosts[0]->read_epoch()[BlockSource::file_system], cached_epoch_bytes)
      << "one host reads all; owners are given their blocks";
  job.settle();
  for (const auto& host : job.hosts) {
    auto sources = host->read_epoch();
    // One choice in 64 tries the file system.
    EXPECT_LE(sources[BlockSource::file_system], 2 * 4 * cache_block_bytes);
    EXPECT_GT(sources[BlockSource::host_cache], 0u);
    EXPECT_GT(sources[BlockSource::peer], cached_epoch_bytes / 3);
  }
}

TEST(BlockCaches, read_the_file_when_a_peer_fails_whatever_its_failure_is) {
  for (const PeerFault fault : {PeerFault::stalled, PeerFault::gone, PeerFault::changes_bits,
                                PeerFault::mixes_up, PeerFault::cuts_short, PeerFault::repeats}) {
    const TemporaryFolder folder;
    SharingHosts job(folder, 2, 70, 100ms);
    job.hosts[0]->read_epoch();
    job.settle();
    job.set_fault(1, fault);
    const auto begin = std::chrono::steady_clock::now();
    auto sources = job.hosts[0]->read_epoch();  // compares every byte
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GT(sources[BlockSource::host_cache], 0u);
    if (fault == PeerFault::repeats) {
      EXPECT_GT(sources[BlockSource::peer], 0u);
    } else {
      EXPECT_EQ(sources[BlockSource::peer], 0u) << static_cast<int>(fault);
      EXPECT_GT(sources[BlockSource::file_system], 0u);
    }
    // Three questions wait for their deadlines, and one after each rest; others are not asked.
    EXPECT_LT(took, 20s) << static_cast<int>(fault);
    const PeerCounts counts = job.hosts[0]->caches().traffic().peers;
    EXPECT_EQ(counts.late > 0, fault == PeerFault::stalled) << static_cast<int>(fault);
    const bool lies = fault == PeerFault::changes_bits || fault == PeerFault::mixes_up ||
                      fault == PeerFault::cuts_short;
    EXPECT_EQ(counts.garbage > 0, lies) << static_cast<int>(fault);
  }
}

TEST(BlockCaches, ask_a_peer_again_once_it_is_well) {
  const TemporaryFolder folder;
  SharingHosts job(folder, 2, 70, 50ms);
  job.hosts[0]->read_epoch();
  job.settle();
  job.set_fault(1, PeerFault::gone);
  EXPECT_EQ(job.hosts[0]->read_epoch()[BlockSource::peer], 0u);
  job.set_fault(1, PeerFault::none);
  const auto end = std::chrono::steady_clock::now() + 30s;
  std::uint64_t from_peer = 0;
  while (from_peer == 0 && std::chrono::steady_clock::now() < end) {
    from_peer = job.hosts[0]->read_epoch()[BlockSource::peer];
  }
  EXPECT_GT(from_peer, 0u);
}

TEST(BlockCaches, end_while_peers_owe_them_answers) {
  const TemporaryFolder folder;
  SharingHosts job(folder, 2, 70, 60s);
  job.set_fault(1, PeerFault::stalled);
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(100);
  int begun = 0;
  for (std::uint32_t file = 0; file < cached_file_count; ++file) {
    for (const CachePiece& piece :
         job.hosts[0]->caches().lookup({.file = file, .offset = 0, .bytes = cached_file_bytes})) {
      if (piece.source == BlockSource::peer) {
        memory.emplace_back(piece.extent.bytes);
        begun += job.hosts[0]->caches().start(piece, memory.back(), 1) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(begun, 0);
  const auto begin = std::chrono::steady_clock::now();
  job.hosts.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s) << "not after the deadline";
}

TEST(BlockCaches, have_no_more_under_way_to_a_peer_than_they_may) {
  const TemporaryFolder folder;
  const auto mailboxes = std::make_shared<Mailboxes>(2);
  mailboxes->faults[1] = PeerFault::stalled;
  MailboxPeers peers(mailboxes, 0);
  HostCache cache(
      {.store = {
           .folder = folder / "cache", .capacity_bytes = 4 * cache_block_bytes, .wants = nullptr}});
  PeerBlocks blocks(peers, cache, [](const BlockKey&) { return std::uint64_t{0}; },
                    {.deadline = 60s, .asked_bytes = 3 * cache_block_bytes});
  std::vector<std::byte> into(10 * cache_block_bytes);
  int taken = 0;
  for (std::uint64_t block = 0; block < 10; ++block) {
    taken += blocks.ask(1, {.file = made_up_file(1), .block = block}, 0,
                        std::span(into).subspan(block * cache_block_bytes, cache_block_bytes),
                        [](AskOutcome) {})
                 ? 1
                 : 0;
  }
  EXPECT_EQ(taken, 3);
}

TEST(BlockCaches, take_no_block_that_they_do_not_own_or_that_lies_about_its_length) {
  const TemporaryFolder folder;
  SharingHosts job(folder, 2, 70);
  // What host 1 is to keep, sent by somebody who is no loader.
  MailboxPeers mad(job.mailboxes, 0);
  const std::vector<std::byte> block = made_up_block({.file = made_up_file(0), .block = 0}, 5000);
  for (const CachedFile& file : made_up_files()) {
    for (std::uint64_t index = 0; index < block_count(cached_file_bytes); ++index) {
      EXPECT_TRUE(mad.send(1,
                           {.verb = PeerVerb::give,
                            .number = 0,
                            .key = {.file = file.key, .block = index},
                            .offset = 0,
                            .bytes = 5000,
                            .checksum = checksum_of_body(block)},
                           block, nullptr));
    }
  }
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (job.hosts[1]->caches().traffic().peers.garbage < 63 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(job.hosts[1]->caches().traffic().peers.garbage, 63u);
  EXPECT_EQ(job.hosts[1]->caches().traffic().host_cache.stored_blocks, 0u);
}

}  // namespace
}  // namespace sprat::io
