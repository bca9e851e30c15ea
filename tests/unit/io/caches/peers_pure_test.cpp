// Messages between hosts, their health, and the choice of a source: without I/O.
#include <gtest/gtest.h>

#include <vector>

#include "io/caches/peer_health.hpp"
#include "io/caches/peer_wire.hpp"
#include "io/caches/source_choice.hpp"
#include "tests/unit/io/caches/blocks.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

PeerHeader any_header(PeerVerb verb) {
  return {.verb = verb,
          .number = 77,
          .key = {.file = made_up_file(1), .block = 5},
          .offset = 4096,
          .bytes = 8192,
          .checksum = 99};
}

TEST(PeerWire, brings_headers_across) {
  for (const PeerVerb verb :
       {PeerVerb::ask, PeerVerb::have, PeerVerb::absent, PeerVerb::busy, PeerVerb::give}) {
    const PeerHeader header = any_header(verb);
    EXPECT_EQ(decode_peer_header(encode_peer_header(header)), header);
    const bool has_body = verb == PeerVerb::have || verb == PeerVerb::give;
    EXPECT_EQ(header.body_bytes(), has_body ? 8192u : 0u);
  }
}

TEST(PeerWire, refuses_what_is_no_header) {
  const auto whole = encode_peer_header(any_header(PeerVerb::have));
  for (std::size_t bit = 0; bit < 8 * peer_header_bytes; ++bit) {
    auto changed = whole;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_peer_header(changed)) << bit;
  }
  EXPECT_FALSE(decode_peer_header(std::span(whole).first(95)));
  EXPECT_FALSE(decode_peer_header({}));
}

TEST(PeerWire, refuses_bytes_that_no_block_has) {
  PeerHeader header = any_header(PeerVerb::ask);
  header.bytes = 0;
  EXPECT_FALSE(decode_peer_header(encode_peer_header(header)));
  header.bytes = cache_block_bytes + 1;
  header.offset = 0;
  EXPECT_FALSE(decode_peer_header(encode_peer_header(header)));
  header.bytes = cache_block_bytes;
  EXPECT_TRUE(decode_peer_header(encode_peer_header(header)));
  header.offset = 1;
  EXPECT_FALSE(decode_peer_header(encode_peer_header(header)));
  header.offset = ~std::uint32_t{0};
  EXPECT_FALSE(decode_peer_header(encode_peer_header(header)));
}

TEST(PeerHealth, leaves_a_host_alone_after_three_failures_and_longer_each_time) {
  PeerHealth health;
  PeerHealth::Time now{};
  health.failed(now);
  health.failed(now);
  EXPECT_TRUE(health.may_be_asked(now));
  health.failed(now);
  auto rest = 1000ms;
  for (int time = 0; time < 10; ++time) {
    EXPECT_FALSE(health.may_be_asked(now + rest - 1ms)) << time;
    EXPECT_TRUE(health.may_be_asked(now + rest)) << time;
    now += rest;
    health.failed(now);  // one is enough from now on
    rest = std::min<std::chrono::milliseconds>(2 * rest, 60'000ms);
  }
  now += rest;
  health.answered();
  health.failed(now);
  health.failed(now);
  EXPECT_TRUE(health.may_be_asked(now)) << "it has been well since";
}

TEST(PeerHealth, counts_a_burst_of_late_answers_once) {
  PeerHealth health;
  const PeerHealth::Time now{};
  for (int question = 0; question < 50; ++question) {
    health.failed(now);
  }
  EXPECT_TRUE(health.may_be_asked(now + 1000ms));
}

TEST(SourceChoice, prefers_the_nearer_of_sources_that_nobody_measured) {
  SourceChoice choice;
  EXPECT_EQ(choice.choose({}), BlockSource::file_system);
  EXPECT_EQ(choice.choose({.peer = true}), BlockSource::peer);
  EXPECT_EQ(choice.choose({.host_cache = true}), BlockSource::host_cache);
  EXPECT_EQ(choice.choose({.host_cache = true, .peer = true}), BlockSource::host_cache);
}

/// How often each source is chosen of `count` times, while they have these rates in MB/s.
std::vector<int> times_chosen(SourceChoice& choice, const BlockPlaces& places,
                              const std::vector<double>& rates, int count) {
  std::vector<int> times(block_sources);
  for (int read = 0; read < count; ++read) {
    const BlockSource source = choice.choose(places);
    const auto index = static_cast<std::size_t>(source);
    ++times[index];
    const double seconds = static_cast<double>(cache_block_bytes) / (rates[index] * 1e6);
    choice.measured(source, cache_block_bytes,
                    std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)), 1);
  }
  return times;
}

TEST(SourceChoice, takes_the_fastest_and_tries_another_now_and_then) {
  SourceChoice choice;
  const BlockPlaces all{.host_cache = true, .peer = true};
  const std::vector<int> times = times_chosen(choice, all, {800, 2000, 300}, 6400);
  EXPECT_GT(times[1], 6400 * 97 / 100);
  EXPECT_GT(times[0], 6400 / 64 / 2);
}

TEST(SourceChoice, follows_rates_that_change) {
  SourceChoice choice;
  const BlockPlaces peer{.peer = true};
  EXPECT_GT(times_chosen(choice, peer, {0, 1000, 100}, 1000)[1], 950);
  // The wire is full: after some reads the file system is faster.
  EXPECT_GT(times_chosen(choice, peer, {0, 10, 100}, 1000)[2], 900);
  // And back again, found out by trials.
  EXPECT_GT(times_chosen(choice, peer, {0, 1000, 100}, 10'000)[1], 7000);
}

TEST(SourceChoice, counts_reads_that_share_a_source_as_one_rate) {
  SourceChoice choice;
  // Eight at a time, each 8 ms: as fast as one after the other in 1 ms.
  for (int read = 0; read < 100; ++read) {
    choice.measured(BlockSource::file_system, 1'000'000, 8ms, 8);
    choice.measured(BlockSource::peer, 1'000'000, 1ms, 1);
  }
  EXPECT_NEAR(*choice.rate(BlockSource::file_system), 1e9, 1e3);
  EXPECT_NEAR(*choice.rate(BlockSource::peer), 1e9, 1e3);
}

TEST(SourceChoice, turns_away_from_a_source_that_fails) {
  SourceChoice choice;
  choice.measured(BlockSource::peer, 100'000'000, 1ms, 1);
  choice.measured(BlockSource::file_system, 1'000'000, 100ms, 1);
  ASSERT_EQ(choice.choose({.peer = true}), BlockSource::peer);
  int failures = 0;
  while (choice.choose({.peer = true}) == BlockSource::peer && failures < 100) {
    choice.failed(BlockSource::peer, 1000ms);
    ++failures;
  }
  EXPECT_LT(failures, 64);
}

}  // namespace
}  // namespace sprat::io
