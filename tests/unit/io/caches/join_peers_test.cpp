// How processes that share blocks find each other.
#include "io/caches/join_peers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "io/caches/block_caches.hpp"
#include "sprat/communicator.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/caches/blocks.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

/// What a door of the library does: texts of one length go through an all_gather.
std::vector<std::string> gathered_texts(Communicator& hosts, const std::string& text) {
  constexpr std::size_t longest = 512;
  require(text.size() <= longest, "a host's text has ", text.size(), " bytes");
  std::vector<std::uint8_t> mine(longest), all(longest * static_cast<std::size_t>(hosts.size()));
  std::memcpy(mine.data(), text.data(), text.size());
  hosts.all_gather(elements(std::as_const(mine)), elements(all)).wait();
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += longest) {
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + at),
                       strnlen(reinterpret_cast<const char*>(all.data() + at), longest));
  }
  return texts;
}

TEST(JoinPeers, hosts_of_a_communicator_give_each_other_blocks) {
  const TemporaryFolder folder;
  constexpr std::uint64_t blocks = 40;
  const CachedFile file{.key = made_up_file(1, blocks * cache_block_bytes),
                        .bytes = blocks * cache_block_bytes};
  run_virtual_ranks(2, Config{}, [&](Communicator& hosts) {
    const std::string name = "host" + std::to_string(hosts.rank());
    BlockCaches caches(
        {.folder = folder / name,
         .capacity_bytes = 60 * cache_block_bytes,
         .files = {file},
         .peers = join_peers(
             {.name = name,
              .address = "127.0.0.1",
              .gather = [&](const std::string& text) { return gathered_texts(hosts, text); }}),
         .peer_options = {.deadline = 30s}});
    EXPECT_TRUE(caches.wait_idle(30s));
    // Each host reads what it owns, and offers it.
    std::uint64_t owned = 0;
    for (std::uint64_t block = 0; block < blocks; ++block) {
      const Extent extent{
          .file = 0, .offset = block * cache_block_bytes, .bytes = cache_block_bytes};
      if (caches.lookup(extent)[0].source == BlockSource::file_system) {
        const auto bytes = shared_block({.file = file.key, .block = block});
        caches.offer(extent, *bytes, bytes);
        ++owned;
      }
    }
    EXPECT_GT(owned, 0u);
    caches.read_from_file_system(cache_block_bytes, 10s, 1);  // a slow one
    EXPECT_TRUE(caches.wait_idle(30s));
    hosts.barrier();
    std::uint64_t from_peer = 0;
    for (std::uint64_t block = 0; block < blocks; ++block) {
      const Extent extent{
          .file = 0, .offset = block * cache_block_bytes, .bytes = cache_block_bytes};
      const CachePiece piece = caches.lookup(extent)[0];
      std::vector<std::byte> into(cache_block_bytes);
      if (piece.source != BlockSource::peer) {
        continue;
      }
      ASSERT_TRUE(caches.start(piece, into, block));
      std::vector<CacheDone> done;
      const auto end = std::chrono::steady_clock::now() + 60s;
      while (done.empty() && std::chrono::steady_clock::now() < end) {
        done = caches.reap();
        std::this_thread::yield();
      }
      ASSERT_EQ(done.size(), 1u);
      EXPECT_TRUE(done[0].there) << block;
      EXPECT_EQ(into, made_up_block({.file = file.key, .block = block}));
      ++from_peer;
    }
    EXPECT_GT(from_peer, (blocks - owned) / 2);
    hosts.barrier();  // nobody leaves while the others ask
  });
}

TEST(JoinPeers, name_the_host_whose_text_makes_no_sense) {
  const auto complaint = [](const std::string& other) -> std::string {
    try {
      join_peers({.name = "a", .address = "127.0.0.1", .gather = [&](const std::string& mine) {
                    return std::vector<std::string>{mine, other};
                  }});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint("nonsense"), testing::HasSubstr("host 1 of 2"));
  EXPECT_THAT(complaint(R"({"name":"b","address":"10.0.0.1"})"), testing::HasSubstr("host 1 of 2"));
  EXPECT_THAT(complaint(R"({"name":"b","address":"host.example","port":1,"secret":"x"})"),
              testing::HasSubstr("host.example"));
}

}  // namespace
}  // namespace sprat::io
