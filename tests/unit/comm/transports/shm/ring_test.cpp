// Messages through shared rings: matching, order, long ones, cancelling, and many threads.
#include "comm/transports/shm/ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "comm/transports/shm/link.hpp"
#include "sprat/error.hpp"
#include "tests/unit/bytes.hpp"
#include "tests/unit/comm/transports/letters.hpp"
#include "tests/unit/comm/transports/shm/out_of_memory.hpp"

namespace sprat::comm {
namespace {

using State = MessageRequest::State;

/// How ranks see each other's memory: through a second, read-only mapping, as processes do, or at
/// the same addresses, so that the thread sanitizer sees who touches what.
enum class Views { read_only, same };

/// The rings of ranks 0..size-1 in this process.
class Shoal {
 public:
  explicit Shoal(int size, Views kind = Views::read_only,
                 std::size_t unexpected_bytes = std::size_t{64} << 20)
      : rung_(static_cast<std::size_t>(size)) {
    const std::size_t bytes = ShmRing::bytes_needed(static_cast<std::size_t>(size));
    std::vector<int> ranks;
    std::vector<const std::byte*> views;
    for (int rank = 0; rank < size; ++rank) {
      const int file = memfd_create("rings", 0);
      EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
      void* writable = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      void* readable = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
      EXPECT_NE(writable, MAP_FAILED);
      EXPECT_NE(readable, MAP_FAILED);
      close(file);
      ranks.push_back(rank);
      mine_.push_back({static_cast<std::byte*>(writable), bytes});
      read_only_.push_back({static_cast<std::byte*>(readable), bytes});
      views.push_back(static_cast<const std::byte*>(kind == Views::same ? writable : readable));
    }
    for (int rank = 0; rank < size; ++rank) {
      rings_.push_back(std::make_unique<ShmRing>(ShmRingOptions{
          rank, ranks, mine_[static_cast<std::size_t>(rank)], views, unexpected_bytes,
          [this](int peer) { rung_[static_cast<std::size_t>(peer)] = true; }}));
    }
  }
  ~Shoal() {
    for (std::size_t rank = 0; rank < mine_.size(); ++rank) {
      munmap(mine_[rank].data(), mine_[rank].size());
      munmap(read_only_[rank].data(), read_only_[rank].size());
    }
  }
  Shoal(const Shoal&) = delete;
  Shoal& operator=(const Shoal&) = delete;

  ShmRing& operator[](int rank) { return *rings_[static_cast<std::size_t>(rank)]; }
  std::span<std::byte> memory(int rank) { return mine_[static_cast<std::size_t>(rank)]; }
  /// Since it was last asked.
  bool rung(int rank) { return rung_[static_cast<std::size_t>(rank)].exchange(false); }
  /// Drives every rank until nothing moves.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& ring : rings_) {
        moved |= ring->progress();
      }
    }
  }

 private:
  std::vector<std::span<std::byte>> mine_;
  std::vector<std::span<std::byte>> read_only_;
  std::vector<std::unique_ptr<ShmRing>> rings_;
  std::vector<std::atomic<bool>> rung_;
};

// None, one line, one frame, just more than a frame, more than the ring, far more.
constexpr std::size_t sizes[] = {0,     1,     32,    33,         4096,
                                 16352, 16353, 65536, 65536 + 32, (1 << 20) + 7};

TEST(ShmRing, every_size_arrives_whichever_side_is_first) {
  for (const std::size_t bytes : sizes) {
    for (const bool recv_first : {false, true}) {
      for (const int to : {0, 1}) {
        Shoal shoal(2);
        const auto sent = pattern(bytes, bytes + 1);
        std::vector<std::byte> got(bytes + 3);
        MessageRequest send, recv;
        if (recv_first) {
          shoal[to].recv(recv, 0, 7, got);
        }
        shoal[0].send(send, to, 7, sent);
        shoal.settle();
        if (!recv_first) {
          shoal[to].recv(recv, 0, 7, got);
          shoal.settle();
        }
        EXPECT_EQ(send.state, State::done) << bytes;
        ASSERT_EQ(recv.state, State::done) << bytes;
        ASSERT_EQ(recv.bytes, bytes);
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin())) << bytes;
      }
    }
  }
}

/// Ranks that sleep until they are rung: the announcement, its answer, and each piece.
TEST(ShmRing, a_long_message_needs_nothing_but_the_rings_of_its_peers) {
  Shoal shoal(3);
  const auto sent = pattern(1 << 20, 1);
  std::vector<std::byte> got(sent.size());
  MessageRequest send, recv;
  shoal[1].recv(recv, 0, 7, got);
  shoal[0].send(send, 1, 7, sent);
  shoal[1].progress();  // who sends rings, too
  for (int round = 0; round < 1000 && recv.state == State::posted; ++round) {
    for (const int rank : {0, 1}) {
      if (shoal.rung(rank)) {
        shoal[rank].progress();
      }
    }
  }
  EXPECT_EQ(send.state, State::done);
  ASSERT_EQ(recv.state, State::done);
  EXPECT_EQ(sent, got);
  EXPECT_FALSE(shoal.rung(2)) << "it has no part in it";
}

TEST(ShmRing, equal_tags_keep_their_order_and_others_need_none) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}}) {
    Shoal shoal(2);
    constexpr int count = 6;
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> got(count, std::vector<std::byte>(bytes));
    std::array<MessageRequest, count> sends, recvs;
    for (int i = 0; i < count; ++i) {
      sent.push_back(pattern(bytes, static_cast<std::uint64_t>(i)));
      shoal[0].send(sends[static_cast<std::size_t>(i)], 1, static_cast<std::uint64_t>(i % 2),
                    sent.back());
    }
    for (const std::size_t i : {1u, 0u, 3u, 5u, 2u, 4u}) {  // odd ones before even ones
      shoal.settle();
      shoal[1].recv(recvs[i], 0, i % 2, got[i]);
    }
    shoal.settle();
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(recvs[i].state, State::done) << i;
      EXPECT_TRUE(same_bytes(got[i], sent[i])) << i;
    }
  }
}

TEST(ShmRing, full_64_bits_of_the_tag_are_compared) {
  Shoal shoal(2);
  const std::uint64_t tags[] = {~std::uint64_t{0}, ~std::uint64_t{0} >> 1, 0,
                                std::uint64_t{1} << 63};
  std::array<MessageRequest, 4> sends, recvs;
  std::array<std::byte, 4> sent{}, got{};
  for (std::size_t i = 0; i < 4; ++i) {
    sent[i] = static_cast<std::byte>(i + 1);
    shoal[0].send(sends[i], 1, tags[i], std::span(sent).subspan(i, 1));
  }
  for (const std::size_t i : {3u, 2u, 1u, 0u}) {
    shoal[1].recv(recvs[i], 0, tags[i], std::span(got).subspan(i, 1));
  }
  shoal.settle();
  EXPECT_TRUE(same_bytes(got, sent));
}

TEST(ShmRing, too_long_message_fails_its_receive_only) {
  for (const std::size_t bytes : {std::size_t{16}, std::size_t{200'000}}) {
    for (const bool recv_first : {false, true}) {
      Shoal shoal(2);
      const auto sent = pattern(bytes, 3), next = pattern(bytes, 4);
      std::vector<std::byte> small(bytes - 1, std::byte{9}), got(bytes);
      MessageRequest send, send_next, recv, recv_next;
      if (recv_first) {
        shoal[1].recv(recv, 0, 7, small);
      }
      shoal[0].send(send, 1, 7, sent);
      shoal[0].send(send_next, 1, 7, next);
      shoal.settle();
      if (!recv_first) {
        shoal[1].recv(recv, 0, 7, small);
      }
      shoal[1].recv(recv_next, 0, 7, got);
      shoal.settle();
      EXPECT_EQ(recv.state, State::failed);
      EXPECT_EQ(recv.error, EMSGSIZE);
      EXPECT_EQ(send.state, State::done);
      EXPECT_EQ(recv_next.state, State::done);
      EXPECT_TRUE(same_bytes(got, next));
    }
  }
}

TEST(ShmRing, short_messages_pass_a_long_one_that_nobody_asks_for) {
  Shoal shoal(2);
  const auto whale = pattern(std::size_t{8} << 20, 1), sprat = pattern(64, 2);
  std::vector<std::byte> got_whale(whale.size()), got_sprat(sprat.size());
  MessageRequest send_whale, send_sprat, recv_whale, recv_sprat;
  shoal[0].send(send_whale, 1, 1, whale);
  shoal[0].send(send_sprat, 1, 2, sprat);
  shoal[1].recv(recv_sprat, 0, 2, got_sprat);
  shoal.settle();
  EXPECT_EQ(recv_sprat.state, State::done);
  EXPECT_EQ(send_whale.state, State::posted);
  shoal[1].recv(recv_whale, 0, 1, got_whale);
  shoal.settle();
  EXPECT_EQ(recv_whale.state, State::done);
  EXPECT_EQ(got_whale, whale);
}

TEST(ShmRing, unexpected_messages_wait_in_the_ring_beyond_their_limit) {
  constexpr std::size_t bytes = 1000, count = 300, limit = 10'000;
  Shoal shoal(2, Views::read_only, limit);
  const auto sent = pattern(bytes, 5);
  std::deque<MessageRequest> sends(count), recvs(count);
  for (MessageRequest& one : sends) {
    shoal[0].send(one, 1, 4, sent);
  }
  shoal.settle();
  const auto waiting = std::count_if(sends.begin(), sends.end(), [](const MessageRequest& one) {
    return one.state == State::posted;
  });
  EXPECT_GT(waiting, static_cast<std::ptrdiff_t>(count - (limit + FrameLane::ring_bytes) / bytes));
  std::vector<std::byte> got(bytes);
  for (MessageRequest& one : recvs) {
    std::fill(got.begin(), got.end(), std::byte{});
    shoal[1].recv(one, 0, 4, got);
    shoal.settle();
    ASSERT_EQ(one.state, State::done);
    ASSERT_TRUE(same_bytes(got, sent));
  }
  EXPECT_TRUE(std::all_of(sends.begin(), sends.end(),
                          [](const MessageRequest& one) { return one.state == State::done; }));
}

/// Past its credit a sender waits for the receives, so what is unmatched takes bounded memory;
/// other messages pass.
TEST(ShmRing, messages_far_ahead_wait_within_their_credit) {
  Shoal shoal(2);
  constexpr std::size_t count = 40'000, bytes = 100;
  const std::vector<std::byte> data(bytes, std::byte{7});
  std::vector<MessageRequest> sends(count);
  for (MessageRequest& send : sends) {
    shoal[0].send(send, 1, 5, data);
    shoal[1].progress();
  }
  shoal.settle();
  const auto done = static_cast<std::size_t>(
      std::ranges::count(sends, State::done, [](const auto& one) { return one.state; }));
  EXPECT_EQ(done, ShmLink::credit_bytes / frame_bytes(bytes));
  EXPECT_EQ(shoal[1].probe(0, 5), bytes);
  EXPECT_EQ(shoal[1].probe(0, 6), std::nullopt);
  EXPECT_THAT(shoal[1].unasked().value(), testing::ElementsAre(0));
  EXPECT_THAT(shoal[0].unasked().value(), testing::IsEmpty());

  MessageRequest other, urgent;
  std::vector<std::byte> target(bytes);
  shoal[0].send(other, 1, 6, data);
  shoal[1].recv(urgent, 0, 6, target);
  shoal.settle();
  EXPECT_EQ(urgent.state, State::done);

  for (std::size_t i = 0; i < count; ++i) {
    MessageRequest recv;
    shoal[1].recv(recv, 0, 5, target);
    shoal.settle();
    ASSERT_EQ(recv.state, State::done) << i;
  }
  EXPECT_TRUE(std::ranges::all_of(sends, [](const auto& one) { return one.state == State::done; }));
}

TEST(ShmRing, cancelled_requests_leave_their_memory_alone) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{500'000}}) {
    for (const int rounds_before : {0, 1, 3}) {
      for (const bool cancel_send : {false, true}) {
        Shoal shoal(2);
        auto sent = pattern(bytes, 6);
        std::vector<std::byte> got(bytes);
        MessageRequest send, recv;
        shoal[1].recv(recv, 0, 1, got);
        shoal[0].send(send, 1, 1, sent);
        for (int round = 0; round < rounds_before; ++round) {
          shoal[1].progress();
          shoal[0].progress();
        }
        MessageRequest& cancelled = cancel_send ? send : recv;
        const bool was_posted = cancelled.state == State::posted;
        shoal[cancel_send ? 0 : 1].cancel(cancelled);
        ASSERT_NE(cancelled.state, State::posted);
        if (was_posted) {
          EXPECT_EQ(cancelled.error, ECANCELED);
        }
        std::fill(sent.begin(), sent.end(), std::byte{0xee});
        const auto before = got;
        shoal.settle();
        if (!cancel_send && was_posted) {
          EXPECT_TRUE(same_bytes(got, before)) << bytes << " bytes, after " << rounds_before;
        }
        // The link carries on.
        const auto again = pattern(bytes, 8);
        MessageRequest send_again, recv_again;
        shoal[1].recv(recv_again, 0, 2, got);
        shoal[0].send(send_again, 1, 2, again);
        shoal.settle();
        EXPECT_EQ(recv_again.state, State::done);
        EXPECT_TRUE(same_bytes(got, again));
      }
    }
  }
}

TEST(ShmRing, without_memory_messages_wait_and_arrive_once_there_is_some) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{100'000}}) {
    constexpr std::size_t count = 600;  // of 4 KiB, more than a quarter of the credit
    Shoal shoal(2);
    const auto sent = pattern(bytes, 9);
    std::vector<std::vector<std::byte>> got(count, std::vector<std::byte>(bytes));
    std::vector<MessageRequest> sends(count), recvs(count);
    {
      const OutOfMemory here;
      for (std::size_t i = 0; i < count; ++i) {
        shoal[1].recv(recvs[i], 0, i, got[i]);
        shoal[0].send(sends[i], 1, i, sent);
      }
      for (int round = 0; round < 5; ++round) {
        shoal[0].progress();
        shoal[1].progress();
      }
    }
    shoal.settle();
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(sends[i].state, State::done) << i << " of " << bytes;
      ASSERT_EQ(recvs[i].state, State::done) << i << " of " << bytes;
      ASSERT_TRUE(same_bytes(got[i], sent)) << i << " of " << bytes;
    }
  }
}

TEST(ShmRing, without_memory_an_announced_message_is_not_lost_to_the_receive_that_fails) {
  constexpr std::size_t count = 100;  // more than room was made for when they were announced
  Shoal shoal(2);
  const auto sent = pattern(100'000, 9);
  std::vector<std::vector<std::byte>> got(count, std::vector<std::byte>(sent.size()));
  std::vector<MessageRequest> sends(count), recvs(count);
  for (std::size_t i = 0; i < count; ++i) {
    shoal[0].send(sends[i], 1, i, sent);
  }
  shoal.settle();
  {
    const OutOfMemory here;
    for (std::size_t i = 0; i < count; ++i) {
      shoal[1].recv(recvs[i], 0, i, got[i]);
    }
  }
  EXPECT_EQ(recvs.back().state, State::failed);
  EXPECT_EQ(recvs.back().error, ENOMEM);
  for (std::size_t i = 0; i < count; ++i) {
    if (recvs[i].state == State::failed) {
      shoal[1].recv(recvs[i], 0, i, got[i]);
    }
  }
  shoal.settle();
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(recvs[i].state, State::done) << i;
    ASSERT_TRUE(same_bytes(got[i], sent)) << i;
  }
}

TEST(ShmRing, without_memory_every_announced_send_can_be_withdrawn) {
  constexpr std::size_t count = 3'000;  // whose withdrawals do not fit into the ring together
  Shoal shoal(2);
  const auto sent = pattern(20'000, 9);
  std::vector<std::byte> got(sent.size());
  std::vector<MessageRequest> sends(count);
  for (MessageRequest& send : sends) {
    shoal[0].send(send, 1, 3, sent);
    shoal[1].progress();
  }
  {
    const OutOfMemory here;
    for (MessageRequest& send : sends) {
      shoal[0].cancel(send);
      EXPECT_EQ(send.error, ECANCELED);
    }
  }
  shoal.settle();
  EXPECT_EQ(shoal[1].probe(0, 3), std::nullopt);
  EXPECT_THAT(shoal[1].unasked().value(), testing::IsEmpty());
}

TEST(ShmRing, withdrawn_long_message_fails_the_receive_it_matched) {
  Shoal shoal(2);
  const auto sent = pattern(500'000, 6);
  std::vector<std::byte> got(sent.size());
  MessageRequest send, recv;
  shoal[1].recv(recv, 0, 1, got);
  shoal[0].send(send, 1, 1, sent);
  shoal[1].progress();
  shoal[0].progress();
  ASSERT_EQ(send.state, State::posted);
  shoal[0].cancel(send);
  shoal.settle();
  EXPECT_EQ(recv.state, State::failed);
  EXPECT_EQ(recv.error, ECANCELED);
}

TEST(ShmRing, nonsense_in_a_peers_memory_fails_its_requests_only) {
  Shoal shoal(3);
  std::vector<std::byte> got(100), sent(100, std::byte{1}), from_good(100);
  MessageRequest recv, later, good_recv, good_send;
  shoal[1].recv(recv, 0, 1, got);
  shoal[1].recv(good_recv, 2, 1, from_good);
  auto* lanes = reinterpret_cast<FrameLane*>(shoal.memory(0).data());
  std::memset(lanes[1].data, 0xff, 64);
  lanes[1].tail.store(64);
  shoal[2].send(good_send, 1, 1, sent);
  shoal.settle();
  EXPECT_EQ(recv.state, State::failed);
  EXPECT_EQ(recv.error, EPROTO);
  EXPECT_EQ(from_good, sent);
  shoal[1].recv(later, 0, 1, got);
  EXPECT_EQ(later.error, EPROTO);
}

TEST(ShmRing, ranks_elsewhere_are_unreachable) {
  Shoal shoal(2);
  std::vector<std::byte> data(4);
  for (const int peer : {-1, 2, 1000}) {
    MessageRequest send, recv;
    shoal[0].send(send, peer, 1, data);
    shoal[0].recv(recv, peer, 1, data);
    EXPECT_EQ(send.error, EHOSTUNREACH);
    EXPECT_EQ(recv.error, EHOSTUNREACH);
  }
}

TEST(ShmRing, different_layouts_are_refused) {
  Shoal two(2), three(3);
  const Blob good[] = {two[0].address(), two[1].address()};
  EXPECT_NO_THROW(two[0].connect(good));
  const Blob bad[] = {two[0].address(), three[1].address()};
  EXPECT_THROW(two[0].connect(bad), Error);
}

TEST(ShmRing, random_letters_of_many_threads_arrive) {
  for (const int ranks : {2, 4}) {
    Shoal shoal(ranks, Views::same);
    const std::vector<Letter> letters = random_letters(ranks, 300, std::size_t{1} << 20);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back(
          [&, rank] { correspond(shoal[rank], rank, letters, static_cast<std::uint64_t>(rank)); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

}  // namespace
}  // namespace sprat::comm
