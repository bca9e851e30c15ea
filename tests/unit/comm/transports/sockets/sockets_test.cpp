// Sockets of our own over the loopback: who connects to whom, strangers, and what remains of a peer
// that has gone. What every wire does is in wires_test.cpp.
#include "comm/transports/sockets/sockets.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/transports/sockets/tcp.hpp"
#include "comm/transports/transport_kind.hpp"
#include "sprat/error.hpp"
#include "tests/unit/bytes.hpp"
#include "tests/unit/comm/transports/letters.hpp"
#include "tests/unit/comm/transports/wires.hpp"
#include "tests/unit/comm/unwatched.hpp"

namespace sprat::comm::sockets {
namespace {

using State = MessageRequest::State;
using namespace std::chrono_literals;

std::unique_ptr<Sockets> open(int rank, int size, std::size_t streams = 1, PortRange ports = {}) {
  return std::make_unique<Sockets>(SocketsOptions{.rank = rank,
                                                  .size = size,
                                                  .rails = {*parse_address("127.0.0.1", 0)},
                                                  .streams_a_rail = streams,
                                                  .ports = ports});
}

struct Job {
  explicit Job(int size, std::size_t streams = 1) {
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(open(rank, size, streams));
      addresses.push_back(ranks.back()->address());
    }
    for (const auto& rank : ranks) {
      rank->connect(addresses);
    }
  }
  bool drive_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      for (const auto& rank : ranks) {
        if (rank) {
          rank->progress();
        }
      }
    }
    return done();
  }
  bool drive_until_ended(std::initializer_list<const MessageRequest*> requests) {
    return drive_until([&] {
      return std::ranges::all_of(
          requests, [](const MessageRequest* one) { return one->state != State::posted; });
    });
  }

  std::vector<std::unique_ptr<Sockets>> ranks;
  std::vector<Blob> addresses;
};

Contact contact_of(Sockets& rank) { return *decode_contact(rank.address()); }

/// A socket that has connected to a rank.
Descriptor stranger_at(Sockets& rank) {
  Descriptor socket = connect_to(*parse_address("127.0.0.1", 0), contact_of(rank).rails.front());
  EXPECT_GE(socket.number(), 0);
  return socket;
}

/// What has come; nothing once the other end has closed.
std::optional<std::vector<std::byte>> heard(const Descriptor& socket) {
  std::vector<std::byte> bytes(4096);
  const ssize_t got = ::recv(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) {
    return std::vector<std::byte>();
  }
  if (got <= 0) {
    return std::nullopt;
  }
  bytes.resize(static_cast<std::size_t>(got));
  return bytes;
}

/// What an epoll watches, as /proc tells of it.
int watched_by(int epoll) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(epoll));
  int watched = 0;
  for (std::string line; std::getline(info, line);) {
    watched += line.starts_with("tfd:") ? 1 : 0;
  }
  return watched;
}

/// Copies of all connections of this process, as a child has them that was not made by fork().
std::vector<Descriptor> copies_of_connections() {
  std::vector<Descriptor> copies;
  constexpr int most_looked_at = 1024;
  for (int descriptor = 0; descriptor < most_looked_at; ++descriptor) {
    sockaddr_storage other{};
    socklen_t bytes = sizeof other;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &bytes) == 0 &&
        other.ss_family == AF_INET) {
      copies.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, most_looked_at));
    }
  }
  return copies;
}

TEST(Sockets, watch_no_connection_that_has_ended_and_that_a_child_holds) {
  Job job(2);
  std::vector<std::byte> data(8);
  MessageRequest recv, send;
  job.ranks[1]->recv(recv, 0, 7, data);
  job.ranks[0]->send(send, 1, 7, data);
  ASSERT_TRUE(job.drive_until_ended({&send, &recv}));
  const int epoll = job.ranks[0]->news()->descriptors().front();
  EXPECT_EQ(watched_by(epoll), 2) << "a listener and a connection";
  const std::vector<Descriptor> held = copies_of_connections();
  EXPECT_GE(held.size(), 2u);
  const Descriptor end = stranger_at(*job.ranks[0]);  // one that is no peer's
  ASSERT_TRUE(job.drive_until([&] { return job.ranks[0]->connections() == 2; }));
  const std::vector<Descriptor> also_held = copies_of_connections();
  const std::array<std::byte, 256> nonsense{};
  EXPECT_GT(::send(end.number(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 0);
  ASSERT_TRUE(job.drive_until([&] { return job.ranks[0]->connections() == 1; }));
  EXPECT_EQ(watched_by(epoll), 2);
  for (const Descriptor& one : held) {
    ::shutdown(one.number(), SHUT_WR);  // as a peer that ends
  }
  ASSERT_TRUE(job.drive_until([&] { return job.ranks[0]->connections() == 0; }));
  EXPECT_EQ(watched_by(epoll), 1) << "its listener";
}

TEST(Sockets, that_the_kernel_does_not_watch_fail_by_a_sentence_and_leave_nothing) {
  Job job(2);
  const std::array strangers = {stranger_at(*job.ranks[1]), stranger_at(*job.ranks[1])};
  std::vector<std::byte> data(8);
  MessageRequest send, later, recv;
  bool served = false, turned_away = false;
  testing::internal::CaptureStderr();
  // A thread of its own, which alone has the filter.
  std::thread([&] {
    served = watch_nothing_new();
    job.ranks[0]->recv(recv, 1, 7, data);
    job.ranks[0]->send(send, 1, 7, data);
    job.ranks[0]->send(later, 1, 7, data);
    turned_away = served && job.drive_until([&] {
      return std::ranges::none_of(strangers,
                                  [](const auto& one) { return heard(one).has_value(); });
    });
  }).join();
  const std::string said = testing::internal::GetCapturedStderr();
  if (!served) {
    GTEST_SKIP() << "needs a kernel that filters system calls of a thread";
  }
  for (const MessageRequest* one : {&send, &later, &recv}) {
    EXPECT_EQ(one->state, State::failed);
    EXPECT_EQ(one->error, ENOMEM);
  }
  EXPECT_TRUE(turned_away) << "both, though only the first is told of";
  EXPECT_EQ(job.ranks[0]->connections(), 0u);
  EXPECT_EQ(job.ranks[1]->connections(), 0u);
  EXPECT_THAT(said, testing::HasSubstr("no connection to rank 1: the kernel watches no more"));
  EXPECT_THAT(said, testing::HasSubstr("fs.epoll.max_user_watches"));
}

TEST(Sockets, are_one_of_the_tables_that_is_chosen_by_name) {
  Config config;
  config.provider = "sockets";
  EXPECT_STREQ(choose_transport(TransportKind::Scope::network, config).name, "sockets");
  for (const char* provider : {"tcp", "net", "efa"}) {
    config.provider = provider;
    EXPECT_STREQ(choose_transport(TransportKind::Scope::network, config).name, "libfabric");
  }
}

TEST(Sockets, connect_when_there_is_something_to_send) {
  Job job(3);
  std::vector<std::byte> data(8);
  MessageRequest recv, send;
  job.ranks[1]->recv(recv, 0, 7, data);
  for (int round = 0; round < 100; ++round) {
    job.drive_until([] { return true; });
    for (const auto& rank : job.ranks) {
      rank->progress();
      EXPECT_EQ(rank->connections(), 0u);
    }
  }
  job.ranks[0]->send(send, 1, 7, data);
  ASSERT_TRUE(job.drive_until_ended({&send, &recv}));
  EXPECT_EQ(job.ranks[0]->connections(), 1u);
  EXPECT_EQ(job.ranks[1]->connections(), 1u);
  EXPECT_EQ(job.ranks[2]->connections(), 0u);
}

// A caller that posts and goes its way has to be heard all the same.
TEST(Sockets, send_what_they_kept_back_when_they_are_flushed) {
  Job job(2);
  std::vector<std::byte> hello(8), got_hello(8);
  MessageRequest send, recv;
  job.ranks[1]->recv(recv, 0, 7, got_hello);
  job.ranks[0]->send(send, 1, 7, hello);
  ASSERT_TRUE(job.drive_until_ended({&send, &recv}));
  std::array<std::vector<std::byte>, 4> sent, got;
  std::array<MessageRequest, 4> sends, recvs;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i].assign(64 * 1024, static_cast<std::byte>(i + 1));
    got[i].resize(sent[i].size());
    job.ranks[1]->recv(recvs[i], 0, i, got[i]);
    job.ranks[0]->send(sends[i], 1, i, sent[i]);
  }
  job.ranks[0]->flush();
  const auto sender = std::exchange(job.ranks[0], nullptr);  // it is driven no more
  EXPECT_TRUE(job.drive_until_ended({&recvs[0], &recvs[1], &recvs[2], &recvs[3]}));
  EXPECT_EQ(got, sent);
}

// As a communicator does that fails between its sends and its flush.
TEST(Sockets, do_not_send_what_was_given_up_while_they_kept_it_back) {
  for (const std::size_t streams : {1u, 3u}) {
    Job job(2, streams);
    const auto sent = pattern(100'000, 2);
    std::vector<std::byte> given_up(sent.size(), std::byte{1}), got(sent.size()), none(sent.size());
    std::array<MessageRequest, 2> sends, recvs;
    job.ranks[1]->recv(recvs[0], 0, 7, none);
    job.ranks[1]->recv(recvs[1], 0, 8, got);
    job.ranks[0]->send(sends[0], 1, 7, given_up);
    job.ranks[0]->send(sends[1], 1, 8, sent);
    EXPECT_EQ(sends[0].state, State::posted);
    job.ranks[0]->cancel(sends[0]);
    EXPECT_EQ(sends[0].error, ECANCELED);
    std::ranges::fill(given_up, std::byte{2});  // it is the caller's again
    ASSERT_TRUE(job.drive_until_ended({&sends[1], &recvs[1]}));
    EXPECT_EQ(recvs[1].state, State::done);
    EXPECT_TRUE(same_bytes(got, sent));
    EXPECT_EQ(recvs[0].state, State::posted);
    job.ranks[1]->cancel(recvs[0]);
    EXPECT_TRUE(none == std::vector<std::byte>(none.size()));
  }
}

TEST(Sockets, end_what_they_kept_back_for_a_peer_that_has_gone) {
  Job job(2);
  const std::vector<std::byte> hello(8), sent = pattern(100'000, 1);
  std::vector<std::byte> got(8), none(8);
  MessageRequest send, recv, never;
  job.ranks[1]->recv(recv, 0, 7, got);
  job.ranks[0]->send(send, 1, 7, hello);
  ASSERT_TRUE(job.drive_until_ended({&send, &recv}));
  job.ranks[0]->recv(never, 1, 9, none);
  std::array<MessageRequest, 3> kept_back;
  for (MessageRequest& one : kept_back) {
    job.ranks[0]->send(one, 1, 8, sent);
  }
  job.ranks[1].reset();
  job.ranks[0]->flush();
  // What the kernel took before it knew is done.
  ASSERT_TRUE(job.drive_until_ended({&kept_back[0], &kept_back[1], &kept_back[2], &never}));
  EXPECT_EQ(never.error, ECONNRESET);
  job.ranks[0]->send(send, 1, 7, sent);
  EXPECT_NE(send.state, State::posted) << "the line is broken, and nobody flushes it";
}

// Both at a time, again and again: the lower one's stands, and no message is lost.
TEST(Sockets, of_two_connections_that_cross_keep_one) {
  for (int round = 0; round < 30; ++round) {
    for (const std::size_t streams : {1u, 3u}) {
      Job job(2, streams);
      const auto sent = pattern(300'000, 1);
      std::array<std::vector<std::byte>, 2> got = {std::vector<std::byte>(sent.size()),
                                                   std::vector<std::byte>(sent.size())};
      std::array<MessageRequest, 2> sends, recvs;
      for (int rank = 0; rank < 2; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        job.ranks[at]->recv(recvs[at], 1 - rank, 7, got[at]);
        job.ranks[at]->send(sends[at], 1 - rank, 7, sent);
        for (int ahead = 0; ahead < round % 5; ++ahead) {
          job.ranks[at]->progress();
        }
      }
      ASSERT_TRUE(job.drive_until_ended({&sends[0], &sends[1], &recvs[0], &recvs[1]}));
      for (const std::size_t at : {0u, 1u}) {
        EXPECT_EQ(recvs[at].state, State::done) << std::strerror(recvs[at].error);
        EXPECT_EQ(sends[at].state, State::done) << std::strerror(sends[at].error);
        EXPECT_TRUE(same_bytes(got[at], sent));
      }
      ASSERT_TRUE(job.drive_until([&] {
        return job.ranks[0]->connections() == job.ranks[1]->connections() &&
               job.ranks[0]->connections() <= streams;
      }));
    }
  }
}

TEST(Sockets, keep_what_came_from_a_peer_that_has_gone) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1'000'000}}) {
    Job job(2);
    const auto sent = pattern(bytes, 1);
    std::vector<std::byte> got(bytes), none(8);
    MessageRequest send, recv, posted;
    job.ranks[0]->recv(posted, 1, 9, none);
    job.ranks[1]->send(send, 0, 7, sent);
    ASSERT_TRUE(job.drive_until_ended({&send}));
    job.ranks[1].reset();
    job.ranks[0]->recv(recv, 1, 7, got);
    ASSERT_TRUE(job.drive_until_ended({&recv, &posted}));
    EXPECT_EQ(recv.state, State::done);
    EXPECT_TRUE(same_bytes(got, sent));
    EXPECT_EQ(posted.state, State::failed);
    EXPECT_EQ(posted.error, ECONNRESET);
  }
}

TEST(Sockets, of_a_rank_that_never_listens_again_refuse) {
  Job job(2);
  job.ranks[1].reset();
  std::vector<std::byte> data(8);
  MessageRequest send, recv;
  job.ranks[0]->recv(recv, 1, 7, data);
  job.ranks[0]->send(send, 1, 7, data);
  ASSERT_TRUE(job.drive_until_ended({&send, &recv}));
  EXPECT_EQ(send.error, ECONNREFUSED);
  EXPECT_EQ(recv.error, ECONNREFUSED);
  MessageRequest later;
  job.ranks[0]->send(later, 1, 7, data);
  EXPECT_EQ(later.error, ECONNREFUSED);
}

TEST(Sockets, tell_strangers_nothing) {
  Job job(2);
  const StreamName name{.from = 1, .to = 0, .stream = 0};
  const HelloBytes hello = encode(StreamHello{.name = name, .nonce = random_nonce()});
  HelloBytes other_magic = hello,
             other_rank =
                 encode(StreamHello{.name = {.from = 7, .to = 0, .stream = 0}, .nonce = {}});
  other_magic.front() = std::byte{'G'};
  for (const HelloBytes& said : {other_magic, other_rank}) {
    const Descriptor stranger = stranger_at(*job.ranks[0]);
    ASSERT_TRUE(job.drive_until([&] {
      static_cast<void>(::send(stranger.number(), said.data(), said.size(), MSG_NOSIGNAL));
      const auto bytes = heard(stranger);
      EXPECT_TRUE(!bytes || bytes->empty());
      return !bytes;
    }));
  }
  // Who speaks the protocol hears a challenge, and nothing more without the key.
  const Descriptor stranger = stranger_at(*job.ranks[0]);
  ASSERT_EQ(::send(stranger.number(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  std::size_t got = 0;
  ASSERT_TRUE(job.drive_until([&] {
    const auto bytes = heard(stranger);
    got += bytes ? bytes->size() : 0;
    return got >= nonce_bytes + proof_bytes;
  }));
  const Proof guess{};
  ASSERT_EQ(::send(stranger.number(), guess.data(), guess.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(guess.size()));
  ASSERT_TRUE(job.drive_until([&] {
    const auto bytes = heard(stranger);
    got += bytes ? bytes->size() : 0;
    return !bytes;
  }));
  EXPECT_EQ(got, nonce_bytes + proof_bytes);
}

/// One of two ranks, by this token.
std::unique_ptr<Sockets> open_encrypted(int rank, const char* token) {
  return std::make_unique<Sockets>(SocketsOptions{
      .rank = rank,
      .size = 2,
      .rails = {*parse_address("127.0.0.1", 0)},
      .encryption = TlsContext::make(stream_encryption(job_key(token, KeyUse::data)))});
}

// Whatever begins like a greeting of ours, like TLS, or like nothing.
TEST(Sockets, encrypted_hear_no_stranger) {
  const auto rank = open_encrypted(0, "a token of sixteen and more");
  const StreamHello hello{.name = {.from = 1, .to = 0, .stream = 0}, .nonce = {}};
  const HelloBytes greeting = encode(hello);
  std::vector<std::byte> nonsense(4000, std::byte{0x5a});
  std::vector<std::byte> like_tls = nonsense;
  const std::array<std::byte, 5> head = {std::byte{22}, std::byte{3}, std::byte{1}, std::byte{15},
                                         std::byte{0}};
  std::ranges::copy(head, like_tls.begin());
  for (const std::span<const std::byte> said :
       {std::span<const std::byte>(greeting), std::span<const std::byte>(nonsense),
        std::span<const std::byte>(like_tls)}) {
    const Descriptor stranger = stranger_at(*rank);
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    std::size_t sent = 0, got = 0;
    for (bool open = true; open && std::chrono::steady_clock::now() < deadline;) {
      rank->progress();
      const ssize_t more = ::send(stranger.number(), said.data() + sent, said.size() - sent,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      sent += more > 0 ? static_cast<std::size_t>(more) : 0;
      const auto answer = heard(stranger);
      open = answer.has_value();
      got += answer ? answer->size() : 0;
    }
    EXPECT_LE(got, 7u) << "an alert at most";
    EXPECT_EQ(rank->connections(), 0u);
  }
}

TEST(Sockets, encrypted_by_another_token_fail) {
  std::array<std::unique_ptr<Sockets>, 2> ranks = {open_encrypted(0, "a token of sixteen and more"),
                                                   open_encrypted(1, "a token of another job")};
  const std::vector<Blob> addresses = {ranks[0]->address(), ranks[1]->address()};
  ranks[0]->connect(addresses);
  ranks[1]->connect(addresses);
  std::vector<std::byte> data(8);
  MessageRequest send;
  ranks[0]->send(send, 1, 7, data);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (send.state == State::posted && std::chrono::steady_clock::now() < deadline) {
    ranks[0]->progress();
    ranks[1]->progress();
  }
  EXPECT_EQ(send.state, State::failed);
  EXPECT_EQ(send.error, EPROTO);
}

/// Two ends of an encrypted stream, over sockets that hold little.
struct EncryptedStream {
  EncryptedStream() {
    std::array<int, 2> pair = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
    const auto context = TlsContext::make(stream_encryption(job_key("a token", KeyUse::data)));
    const auto key = [](const StreamName&) { return std::optional<std::string>("key"); };
    near.emplace(Descriptor(pair[0]), StreamName{.from = 0, .to = 1, .stream = 0}, "key");
    far.emplace(Descriptor(pair[1]), key, Channel::Time());
    near->encrypt(context);
    far->encrypt(context);
    for (int round = 0; round < 100 && !near->opened(); ++round) {
      if (near->greet().greeted == Greeted::stands) {
        near->open(out);
      }
      if (!far->opened() && far->greet().greeted == Greeted::proved) {
        far->answer(true);
        far->greet();
        far->open(in);
      }
    }
  }
  /// What has come to an end for an error.
  int move() {
    int error = 0;
    for (Channel* end : {&*near, &*far}) {
      end->note_writable();
      end->note_readable(false);
      error = std::max({error, end->write().error, end->read(buffer).error});
    }
    return error;
  }

  UnexpectedRules rules{1 << 20};
  Link out{1, rules}, in{1, rules};
  std::optional<Channel> near, far;
  std::vector<std::byte> buffer = std::vector<std::byte>(65536);
};

// There is no room for a record of its frame's when a message is withdrawn: it goes all the same,
// from a copy, or nothing behind it could be read.
TEST(Sockets, encrypted_end_what_is_begun) {
  EncryptedStream stream;
  ASSERT_TRUE(stream.near->opened() && stream.far->opened());
  constexpr std::uint64_t unheard = std::uint64_t{5} << (tag_bits - 1 - communicator_bits);
  stream.rules.forget(communicator_of(unheard));
  for (const std::size_t bytes : {1u, 1'000u, 16'000u, 100'000u}) {
    auto data = pattern(bytes, bytes);
    std::vector<std::unique_ptr<MessageRequest>> sends;
    while (!stream.near->blocked() && sends.size() < 100'000) {
      sends.push_back(std::make_unique<MessageRequest>());
      stream.out.send(*sends.back(), unheard, data);
      ASSERT_EQ(stream.near->write().error, 0);
    }
    ASSERT_TRUE(stream.near->blocked());
    for (const auto& send : sends) {
      EXPECT_TRUE(send->state != State::posted || stream.out.cancel(*send));
    }
    std::ranges::fill(data, std::byte{0});
    const auto last = pattern(999, bytes);
    std::vector<std::byte> room(last.size());
    MessageRequest recv, send;
    stream.in.in.recv(recv, 3, room);
    stream.out.send(send, 3, last);
    for (int round = 0; round < 1'000 && recv.state == State::posted; ++round) {
      ASSERT_EQ(stream.move(), 0) << bytes;
    }
    EXPECT_EQ(recv.state, State::done) << bytes;
    EXPECT_TRUE(room == last) << bytes;
  }
}

TEST(Sockets, of_a_rank_with_another_key_are_turned_away) {
  Job job(2);
  const auto stranger = open(1, 2);
  stranger->connect(std::vector{job.addresses[0], stranger->address()});
  std::vector<std::byte> forged(1000, std::byte{'x'}), got(1000), sent = pattern(1000, 1);
  MessageRequest forgery, recv, send;
  job.ranks[0]->recv(recv, 1, 7, got);
  stranger->send(forgery, 0, 7, forged);
  ASSERT_TRUE(job.drive_until([&] {
    stranger->progress();
    return forgery.state != State::posted;
  }));
  EXPECT_EQ(forgery.state, State::failed);
  EXPECT_EQ(recv.state, State::posted);
  job.ranks[1]->send(send, 0, 7, sent);
  ASSERT_TRUE(job.drive_until_ended({&recv, &send}));
  EXPECT_EQ(recv.state, State::done);
  EXPECT_TRUE(same_bytes(got, sent));
}

// Strangers that say nothing fill the places; whoever comes then waits in the kernel until one of
// them has had its time, and nobody is harmed whose greeting is over.
TEST(Sockets, serve_peers_beside_many_silent_strangers) {
  Job job(2);
  std::vector<Descriptor> strangers;
  for (int count = 0; count < 200; ++count) {
    strangers.push_back(stranger_at(*job.ranks[0]));
    job.ranks[0]->progress();
  }
  const auto sent = pattern(1000, 1);
  std::vector<std::byte> got(1000);
  MessageRequest send, recv;
  job.ranks[0]->recv(recv, 1, 7, got);
  job.ranks[1]->send(send, 0, 7, sent);
  ASSERT_TRUE(job.drive_until_ended({&send, &recv}));
  EXPECT_TRUE(same_bytes(got, sent));
}

TEST(Sockets, of_a_peer_that_sends_nonsense_are_closed) {
  Job job(2);
  // Rank 1 in person, by hand: it knows the key of the pair.
  const StreamName name{.from = 1, .to = 0, .stream = 0};
  const auto text = [](const Contact& contact) {
    return std::string(reinterpret_cast<const char*>(contact.key.data()), contact.key.size());
  };
  Connecting greeting(
      name, stream_key(text(contact_of(*job.ranks[0])), text(contact_of(*job.ranks[1])), name));
  const Descriptor peer = stranger_at(*job.ranks[0]);
  Greeted greeted = Greeted::not_yet;
  ASSERT_TRUE(job.drive_until([&] {
    const auto out = greeting.output();
    const ssize_t sent = ::send(peer.number(), out.data(), out.size(), MSG_NOSIGNAL);
    greeting.wrote(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    const auto in = greeting.input();
    const ssize_t got = ::recv(peer.number(), in.data(), in.size(), MSG_DONTWAIT);
    if (got > 0) {
      greeted = greeting.got(static_cast<std::size_t>(got));
    }
    return greeted != Greeted::not_yet;
  }));
  ASSERT_EQ(greeted, Greeted::stands);
  std::vector<std::byte> data(8);
  MessageRequest recv;
  job.ranks[0]->recv(recv, 1, 7, data);
  const std::array<std::byte, frame_bytes> nonsense{std::byte{77}};
  ASSERT_EQ(::send(peer.number(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(nonsense.size()));
  ASSERT_TRUE(job.drive_until_ended({&recv}));
  EXPECT_EQ(recv.error, EPROTO);
}

TEST(Sockets, listen_within_the_range_of_ports) {
  std::unique_ptr<Sockets> first, second;
  int last = 0;
  for (int attempt = 0; !second; ++attempt) {
    last =
        contact_of(*open(0, 3)).rails.front().port;  // free a moment ago; the one before may not be
    try {
      first = open(0, 3, 1, {last - 1, last});
      second = open(1, 3, 1, {last - 1, last});
    } catch (const Error& error) {
      ASSERT_LT(attempt, 20) << error.what();
    }
  }
  EXPECT_EQ(contact_of(*first).rails.front().port, last);
  EXPECT_EQ(contact_of(*second).rails.front().port, last - 1);
  try {
    open(2, 3, 1, {last - 1, last});
    FAIL() << "was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr("every port of SPRAT_PORTS="));
  }
}

TEST(Sockets, refuse_peers_that_have_other_ones_by_name) {
  const auto mine = open(0, 2);
  Contact two = contact_of(*mine);
  two.rails.push_back(two.rails.front());
  struct Case {
    Blob address;
    const char* said;
  };
  for (const Case& one : {Case{encode(two), "rank 1 has 2 rails, this rank 1"},
                          Case{Blob(7), "rank 1 does not say where its sockets are"}}) {
    try {
      mine->connect(std::vector{mine->address(), one.address});
      FAIL() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), testing::HasSubstr(one.said));
    }
  }
}

// More connections than are looked at one by one.
TEST(Sockets, join_many_ranks) {
  constexpr int size = 12;
  Job job(size, 2);
  std::vector<MessageRequest> sends(size * size), recvs(size * size);
  std::vector<std::vector<std::byte>> sent, got;
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const auto at = static_cast<std::size_t>(from * size + to);
      sent.push_back(pattern(from == to ? 0 : 1000 * at, at));
      got.emplace_back(sent.back().size());
    }
  }
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const auto at = static_cast<std::size_t>(from * size + to);
      if (from != to) {
        job.ranks[static_cast<std::size_t>(to)]->recv(recvs[at], from, 7, got[at]);
        job.ranks[static_cast<std::size_t>(from)]->send(sends[at], to, 7, sent[at]);
      }
    }
  }
  ASSERT_TRUE(job.drive_until([&] {
    return std::ranges::none_of(recvs,
                                [](const auto& one) { return one.state == State::posted; }) &&
           std::ranges::none_of(sends, [](const auto& one) { return one.state == State::posted; });
  }));
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace sprat::comm::sockets
