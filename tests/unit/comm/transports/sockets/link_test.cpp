// Two ends of a link whose streams are memory: what comes is what was sent, in whatever parts the
// streams carry it, and nothing is touched that has ended.
#include "comm/transports/sockets/link.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <random>
#include <vector>

#include "comm/transports/sockets/stream_plan.hpp"
#include "tests/unit/bytes.hpp"
#include "tests/unit/comm/transports/letters.hpp"

namespace sprat::comm::sockets {
namespace {

using State = MessageRequest::State;

/// Two links, and their streams each way: bytes under way, of which there is room for so many.
struct LinkPair {
  explicit LinkPair(std::size_t streams, std::size_t room = 100'000,
                    std::size_t unexpected = std::size_t{64} << 20)
      : rules{unexpected},
        ends{Link(streams, rules), Link(streams, rules)},
        under_way{std::vector<std::vector<std::byte>>(streams),
                  std::vector<std::vector<std::byte>>(streams)},
        most(room) {}

  /// Writes up to `bytes` of what an end's stream has to say.
  bool write(std::size_t end, std::size_t stream, std::size_t bytes) {
    auto& wire = under_way[end][stream];
    std::array<Outgoing, Outbox::frames_at_once> frames;
    const std::size_t given = ends[end].out.outgoing(stream, frames, bytes);
    std::size_t left = std::min(bytes, most - wire.size()), gone = 0;
    for (const Outgoing& frame : std::span(frames).first(given)) {
      for (const auto& part : {frame.header, frame.body}) {
        const auto taken = part.first(std::min(part.size(), left));
        wire.insert(wire.end(), taken.begin(), taken.end());
        left -= taken.size();
        gone += taken.size();
      }
    }
    if (gone > 0) {
      ends[end].out.wrote(stream, gone);
    }
    return gone > 0;
  }
  /// Lets the other end read up to `bytes` of what an end has written.
  Inbox::Taken read(std::size_t end, std::size_t stream, std::size_t bytes) {
    auto& wire = under_way[end][stream];
    const auto fed =
        ends[1 - end].in.feed(stream, std::span(wire).first(std::min(bytes, wire.size())));
    wire.erase(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(fed.bytes));
    return fed.taken;
  }
  /// Everything that can move does, some rounds.
  void drive(int rounds = 2000) {
    for (int round = 0; round < rounds; ++round) {
      bool moved = false;
      for (const std::size_t end : {0u, 1u}) {
        for (std::size_t stream = 0; stream < ends[end].out.streams(); ++stream) {
          moved |= write(end, stream, 1 << 20);
          const std::size_t before = under_way[end][stream].size();
          ASSERT_NE(read(end, stream, 1 << 20), Inbox::Taken::nonsense);
          moved |= under_way[end][stream].size() != before;
        }
      }
      if (!moved) {
        return;
      }
    }
  }

  UnexpectedRules rules;
  std::array<Link, 2> ends;
  std::array<std::vector<std::vector<std::byte>>, 2> under_way;
  std::size_t most;
};

constexpr std::array<std::size_t, 9> lengths = {0,
                                                1,
                                                least_cut - 1,
                                                least_cut,
                                                100'001,
                                                most_unasked - 1,
                                                most_unasked,
                                                most_unasked + 1,
                                                3'000'001};

TEST(SocketLink, carries_every_length_whichever_side_is_first) {
  for (const std::size_t streams : {1u, 2u, 5u}) {
    LinkPair pair(streams);
    std::uint64_t tag = 0;
    for (const std::size_t bytes : lengths) {
      for (const int first : {0, 1, 2}) {  // the receive, the send, the receive in its midst
        const auto sent = pattern(bytes, bytes + ++tag);
        std::vector<std::byte> got(bytes);
        MessageRequest send, recv;
        if (first == 0) {
          pair.ends[1].in.recv(recv, tag, got);
        }
        pair.ends[0].send(send, tag, sent);
        if (first != 0) {
          pair.drive(first == 1 ? 2000 : 1);
          pair.ends[1].in.recv(recv, tag, got);
        }
        pair.drive();
        ASSERT_EQ(send.state, State::done) << bytes << " bytes, " << streams << " streams";
        ASSERT_EQ(recv.state, State::done) << bytes << " bytes, " << streams << " streams";
        EXPECT_EQ(recv.bytes, bytes);
        EXPECT_TRUE(same_bytes(got, sent)) << bytes << " bytes, " << streams << " streams";
      }
    }
  }
}

TEST(SocketLink, announces_what_is_past_the_credit_and_sends_it_when_it_is_asked_for) {
  LinkPair pair(1, std::size_t{64} << 20);
  constexpr std::size_t count = 40, bytes = 300'000;
  std::deque<MessageRequest> sends(count), recvs(count);
  std::vector<std::vector<std::byte>> sent, got;
  for (std::size_t at = 0; at < count; ++at) {
    sent.push_back(pattern(bytes, at));
    got.emplace_back(bytes);
    pair.ends[0].send(sends[at], at, sent.back());
  }
  pair.drive();
  // What the peer keeps is bounded by the credit; the rest waits here.
  const auto gone =
      static_cast<std::size_t>(std::ranges::count(sends, State::done, &MessageRequest::state));
  EXPECT_EQ(gone, Outbox::credit_bytes / (bytes + frame_bytes));
  EXPECT_EQ(pair.ends[1].in.probe(count - 1), bytes);
  // The other way round: none of those that wait is in the way of another one.
  for (std::size_t at = count; at-- > 0;) {
    pair.ends[1].in.recv(recvs[at], at, got[at]);
    pair.drive();
    ASSERT_EQ(recvs[at].state, State::done) << at;
    EXPECT_TRUE(same_bytes(got[at], sent[at])) << at;
  }
  // The credit has come back: as much goes unasked again.
  MessageRequest again;
  pair.ends[0].send(again, 1000, sent.front());
  pair.drive();
  EXPECT_EQ(again.state, State::done);
}

TEST(SocketLink, has_not_sent_an_empty_message_past_the_credit_before_it_is_asked_for) {
  LinkPair pair(1, std::size_t{64} << 20);
  const auto sent = pattern(Outbox::credit_bytes / 4 - frame_bytes, 1);
  std::array<MessageRequest, 4> sends;
  for (MessageRequest& send : sends) {
    pair.ends[0].send(send, 1, sent);
  }
  MessageRequest empty, recv;
  pair.ends[0].send(empty, 2, {});
  pair.drive();
  EXPECT_EQ(sends.back().state, State::done);
  EXPECT_EQ(empty.state, State::posted);
  pair.ends[1].in.recv(recv, 2, {});
  pair.drive();
  EXPECT_EQ(recv.state, State::done);
  EXPECT_EQ(empty.state, State::done);
}

TEST(SocketLink, keeps_no_more_than_its_limit_and_goes_on_once_there_is_room) {
  LinkPair pair(1, 1 << 20, 10'000);
  const auto sent = pattern(4'000, 1);
  std::array<MessageRequest, 4> sends, recvs;
  std::array<std::vector<std::byte>, 4> got;
  for (std::size_t at = 0; at < sends.size(); ++at) {
    pair.ends[0].send(sends[at], at, sent);
  }
  pair.drive();
  EXPECT_TRUE(pair.ends[1].in.probe(1));
  EXPECT_FALSE(pair.ends[1].in.probe(2));
  for (std::size_t at = 0; at < sends.size(); ++at) {
    got[at].resize(sent.size());
    pair.ends[1].in.recv(recvs[at], at, got[at]);
    pair.drive();
    EXPECT_EQ(recvs[at].state, State::done) << at;
    EXPECT_TRUE(same_bytes(got[at], sent)) << at;
  }
}

TEST(SocketLink, refuses_what_does_not_fit_and_goes_on) {
  for (const std::size_t streams : {1u, 3u}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'001}, std::size_t{2} << 20}) {
      for (const bool recv_first : {false, true}) {
        LinkPair pair(streams);
        const auto sent = pattern(bytes, 1);
        std::vector<std::byte> small(bytes - 1), next(bytes);
        MessageRequest send, send_next, recv, recv_next;
        if (recv_first) {
          pair.ends[1].in.recv(recv, 7, small);
        }
        pair.ends[0].send(send, 7, sent);
        pair.ends[0].send(send_next, 7, sent);
        pair.drive(recv_first ? 2000 : 3);
        if (!recv_first) {
          pair.ends[1].in.recv(recv, 7, small);
        }
        pair.ends[1].in.recv(recv_next, 7, next);
        pair.drive();
        EXPECT_EQ(recv.state, State::failed);
        EXPECT_EQ(recv.error, EMSGSIZE);
        EXPECT_EQ(recv.bytes, bytes);
        EXPECT_TRUE(std::ranges::all_of(small, [](std::byte one) { return one == std::byte{}; }));
        EXPECT_EQ(send.state, State::done);
        EXPECT_EQ(recv_next.state, State::done);
        EXPECT_EQ(send_next.state, State::done);
        EXPECT_TRUE(same_bytes(next, sent));
      }
    }
  }
}

// At every moment of a message: nothing of it is touched afterwards, and the next ones arrive.
TEST(SocketLink, withdraws_either_side_at_any_moment) {
  for (const std::size_t streams : {1u, 3u}) {
    for (const std::size_t bytes : {std::size_t{10}, std::size_t{100'001}, std::size_t{2} << 20}) {
      for (const bool sender : {false, true}) {
        for (int moment = 0; moment < 12; ++moment) {
          LinkPair pair(streams, 30'000);
          auto sent = pattern(bytes, 1);
          const auto next = pattern(bytes, 2);
          std::vector<std::byte> got(bytes), got_next(bytes);
          MessageRequest send, recv, send_next, recv_next;
          const bool recv_first = moment % 2 == 0;
          if (recv_first) {
            pair.ends[1].in.recv(recv, 7, got);
          }
          pair.ends[0].send(send, 7, sent);
          pair.drive(moment / 2);
          if (!recv_first) {
            pair.ends[1].in.recv(recv, 7, got);
          }
          pair.drive(moment / 3);
          MessageRequest& given_up = sender ? send : recv;
          if (given_up.state == State::posted) {
            ASSERT_TRUE(pair.ends[sender ? 0 : 1].cancel(given_up));
            EXPECT_EQ(given_up.state, State::failed);
            EXPECT_EQ(given_up.error, ECANCELED);
          }
          const std::vector<std::byte> before = got;
          if (sender) {
            std::ranges::fill(sent, std::byte{0xee});  // it is the caller's again
          }
          pair.drive();
          if (!sender && given_up.error == ECANCELED) {
            EXPECT_TRUE(same_bytes(got, before));
          }
          if (sender && recv.state == State::done) {
            EXPECT_TRUE(same_bytes(got, pattern(bytes, 1)));
          }
          if (recv.state == State::posted) {  // the sender had not begun
            ASSERT_TRUE(pair.ends[1].cancel(recv));
          }
          pair.ends[1].in.recv(recv_next, 8, got_next);
          pair.ends[0].send(send_next, 8, next);
          pair.drive();
          ASSERT_EQ(recv_next.state, State::done)
              << bytes << " bytes, " << streams << " streams, moment " << moment;
          EXPECT_EQ(send_next.state, State::done);
          EXPECT_TRUE(got_next == next);
          // What was announced waits until somebody asks for it.
          if (send.state == State::posted) {
            ASSERT_TRUE(pair.ends[0].cancel(send));
          }
          EXPECT_NE(send.state, State::posted);
        }
      }
    }
  }
}

StreamFrameKind first_kind(LinkPair& pair, std::size_t end) {
  FrameHeader header{};
  const auto frame = pair.ends[end].out.outgoing(0).header;
  std::copy_n(frame.begin(), std::min(frame.size(), header.size()), header.begin());
  return decode(header).value().kind;
}

// Its pieces are on their way before the peer has said a word more, though it sends a long message
// itself that takes all the room of its stream.
TEST(SocketLink, announces_nothing_to_a_receive_that_waits) {
  for (const std::size_t streams : {1u, 3u}) {
    LinkPair pair(streams, 50'000);
    constexpr std::size_t bytes = 3'000'001;
    std::array<std::vector<std::byte>, 2> sent, got;
    std::array<MessageRequest, 2> sends, recvs;
    for (int round = 0; round < 50; ++round) {
      for (const std::size_t end : {0u, 1u}) {
        sent[end] = pattern(bytes, 2 * round + end);
        got[end].assign(bytes, std::byte{});
        pair.ends[end].in.recv(recvs[end], 7, got[end]);
        pair.write(end, 0, frame_bytes);
        ASSERT_EQ(pair.read(end, 0, frame_bytes), Inbox::Taken::yes);
      }
      for (const std::size_t end : {0u, 1u}) {
        pair.ends[end].send(sends[end], 7, sent[end]);
        EXPECT_EQ(first_kind(pair, end), StreamFrameKind::expected) << round;
        EXPECT_TRUE(pair.ends[end].out.has_pieces());
      }
      pair.drive();
      for (const std::size_t end : {0u, 1u}) {
        ASSERT_EQ(sends[end].state, State::done) << round;
        ASSERT_EQ(recvs[end].state, State::done) << round;
        ASSERT_TRUE(same_bytes(got[end], sent[1 - end])) << round;
      }
    }
  }
}

// One that is on its way when a receive is told of may be for that receive, as far as its sender
// knows; so the next one is announced.
TEST(SocketLink, announces_what_an_earlier_message_may_have_taken_the_receive_of) {
  LinkPair pair(1, std::size_t{64} << 20);
  constexpr std::size_t bytes = 2'000'000;
  const auto short_one = pattern(10, 1), long_one = pattern(bytes, 2);
  std::vector<std::byte> got(bytes), got_next(bytes);
  MessageRequest send, send_next, recv, recv_next;
  pair.ends[1].in.recv(recv, 7, got);
  pair.ends[0].send(send, 7, short_one);
  pair.write(0, 0, 1 << 20);  // before the word of the receive is read
  pair.write(1, 0, 1 << 20);
  ASSERT_EQ(pair.read(1, 0, 1 << 20), Inbox::Taken::yes);
  pair.ends[0].send(send_next, 7, long_one);
  EXPECT_EQ(first_kind(pair, 0), StreamFrameKind::announce);
  pair.drive();
  EXPECT_EQ(recv.state, State::done);
  EXPECT_EQ(recv.bytes, short_one.size());
  pair.ends[1].in.recv(recv_next, 7, got_next);
  pair.drive();
  EXPECT_EQ(recv_next.state, State::done);
  EXPECT_TRUE(same_bytes(got_next, long_one));
}

// What was sent to it comes to nothing, and takes neither room nor credit.
TEST(SocketLink, drops_what_comes_for_a_receive_that_has_been_given_up) {
  for (const std::size_t streams : {1u, 3u}) {
    LinkPair pair(streams, 50'000, 1'000);
    constexpr std::size_t bytes = 3'000'001;
    const auto sent = pattern(bytes, 1);
    std::vector<std::byte> got(bytes);
    for (std::uint64_t tag = 1; tag < 20; ++tag) {
      MessageRequest send, recv;
      pair.ends[1].in.recv(recv, tag, got);
      pair.drive();
      ASSERT_TRUE(pair.ends[1].cancel(recv));
      pair.ends[0].send(send, tag, sent);
      pair.drive();
      EXPECT_EQ(send.state, State::done);
      EXPECT_FALSE(pair.ends[1].in.probe(tag));
      EXPECT_TRUE(same_bytes(got, std::vector<std::byte>(bytes)));
    }
    MessageRequest send, recv;
    pair.ends[1].in.recv(recv, 100, got);
    pair.ends[0].send(send, 100, sent);
    pair.drive();
    EXPECT_EQ(recv.state, State::done);
    EXPECT_TRUE(same_bytes(got, sent));
  }
}

/// One system call takes them all, and a call that takes less may end within any of them.
TEST(SocketLink, gives_a_stream_several_frames_at_once) {
  constexpr std::size_t bytes = 10'000;
  for (const std::size_t portion : {std::size_t{1}, std::size_t{bytes + 7}, std::size_t{1} << 20}) {
    LinkPair pair(1, 1 << 20);
    std::array<std::vector<std::byte>, 12> sent, got;
    std::array<MessageRequest, 12> sends, recvs;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      sent[i] = pattern(bytes, i);
      got[i].resize(bytes);
      pair.ends[1].in.recv(recvs[i], i, got[i]);
      pair.ends[0].send(sends[i], i, sent[i]);
    }
    std::array<Outgoing, Outbox::frames_at_once> frames;
    EXPECT_EQ(pair.ends[0].out.outgoing(0, frames, 1), 1u);
    EXPECT_EQ(pair.ends[0].out.outgoing(0, frames, 2 * bytes), 2u);
    EXPECT_EQ(pair.ends[0].out.outgoing(0, frames, 1 << 20), frames.size());
    EXPECT_EQ(pair.ends[0].out.outgoing(0).bytes(), frames[0].bytes()) << "they stay as they are";
    // One that is begun, and of which nothing has gone, is as if it had never been sent.
    ASSERT_TRUE(pair.ends[0].cancel(sends[3]));
    EXPECT_EQ(sends[3].error, ECANCELED);
    while (pair.write(0, 0, portion)) {
      ASSERT_NE(pair.read(0, 0, 1 << 20), Inbox::Taken::nonsense);
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(sends[i].state, i == 3 ? State::failed : State::done) << i;
      EXPECT_EQ(recvs[i].state, i == 3 ? State::posted : State::done) << i;
      EXPECT_EQ(got[i] == sent[i], i != 3) << i;
    }
  }
}

/// What one took ahead of the others they would lack.
TEST(SocketLink, gives_each_of_several_streams_one_frame_at_once) {
  LinkPair pair(4, 1 << 20);
  const auto sent = pattern(std::size_t{1} << 20, 1);
  std::vector<std::byte> got(sent.size());
  MessageRequest send, recv;
  pair.ends[1].in.recv(recv, 7, got);
  pair.ends[0].send(send, 7, sent);
  std::array<Outgoing, Outbox::frames_at_once> frames;
  for (std::size_t stream = 0; stream < 4; ++stream) {
    EXPECT_EQ(pair.ends[0].out.outgoing(stream, frames, 1 << 20), 1u);
  }
  pair.drive();
  EXPECT_TRUE(recv.state == State::done && got == sent);
}

TEST(SocketLink, has_sent_nothing_whose_header_waits_though_its_pieces_have_overtaken_it) {
  LinkPair pair(2);
  const auto sent = pattern(2 * least_cut, 9);
  std::vector<std::byte> got(sent.size());
  MessageRequest send, recv;
  pair.ends[1].in.recv(recv, 7, got);
  pair.ends[0].send(send, 7, sent);
  ASSERT_GT(pair.ends[0].out.outgoing(0).bytes(),
            0u);  // begun, on a stream that does not stand yet
  while (pair.write(0, 1, 1 << 20)) {
  }
  EXPECT_EQ(pair.under_way[0][1].size(), sent.size() + 2 * frame_bytes) << "all pieces have gone";
  EXPECT_EQ(pair.read(0, 1, 1 << 20), Inbox::Taken::not_yet);
  EXPECT_EQ(send.state, State::posted) << "the peer cannot know what they are";
  ASSERT_TRUE(pair.write(0, 0, 1 << 20));
  EXPECT_EQ(send.state, State::done);
  pair.drive();
  EXPECT_EQ(recv.state, State::done);
  EXPECT_TRUE(same_bytes(got, sent));
}

TEST(SocketLink, withdraws_what_only_a_header_is_missing_of) {
  LinkPair pair(2);
  const auto sent = pattern(2 * least_cut, 3);
  std::vector<std::byte> got(sent.size());
  MessageRequest send, recv;
  pair.ends[0].send(send, 7, sent);
  ASSERT_GT(pair.ends[0].out.outgoing(0).bytes(), 0u);
  while (pair.write(0, 1, 1 << 20)) {
  }
  ASSERT_TRUE(pair.ends[0].cancel(send));
  EXPECT_EQ(send.state, State::failed);
  pair.ends[1].in.recv(recv, 7, got);
  pair.drive();
  EXPECT_EQ(recv.state, State::done) << "it had gone";
  EXPECT_TRUE(same_bytes(got, sent));
}

TEST(SocketLink, ends_everything_but_what_came_whole_when_it_breaks) {
  LinkPair pair(2, 1 << 20);
  const auto sent = pattern(100, 1), large = pattern(2 << 20, 2);
  std::vector<std::byte> got(100), never(100);
  std::vector<std::byte> half(large.size());
  MessageRequest send, send_large, recv, recv_large, recv_never, announced;
  pair.ends[1].in.recv(recv_large, 2, half);
  pair.ends[1].in.recv(recv_never, 3, never);
  pair.ends[0].send(send, 1, sent);
  pair.ends[0].send(send_large, 2, large);
  pair.drive(3);
  pair.ends[0].send(announced, 4, large);
  ASSERT_EQ(send_large.state, State::posted);
  pair.ends[1].break_off(ECONNRESET);
  pair.ends[0].break_off(EPIPE);
  for (const MessageRequest* one : {&recv_large, &recv_never}) {
    EXPECT_EQ(one->state, State::failed);
    EXPECT_EQ(one->error, ECONNRESET);
  }
  for (const MessageRequest* one : {&send_large, &announced}) {
    EXPECT_EQ(one->state, State::failed);
    EXPECT_EQ(one->error, EPIPE);
  }
  // It came before the end, so it can still be received.
  pair.ends[1].in.recv(recv, 1, got);
  EXPECT_EQ(recv.state, State::done);
  EXPECT_TRUE(same_bytes(got, sent));
  MessageRequest late;
  pair.ends[1].in.recv(late, 1, got);
  EXPECT_EQ(late.error, ECONNRESET);
  pair.ends[0].send(late, 1, sent);
  EXPECT_EQ(late.error, EPIPE);
}

TEST(SocketLink, takes_no_frame_that_its_state_has_no_place_for) {
  using Kind = StreamFrameKind;
  struct Case {
    std::size_t stream;
    StreamFrame frame;
  };
  const std::vector<Case> cases = {
      {1, {.kind = Kind::message}},  // of the first stream alone
      {1, {.kind = Kind::grant}},
      {0, {.kind = Kind::announce, .id = 1}},                                 // not the next number
      {0, {.kind = Kind::piece, .id = 0, .tag = 0, .from = 0, .bytes = 1}},   // of nothing
      {0, {.kind = Kind::credit, .id = 0, .tag = 0, .from = 0, .bytes = 1}},  // nothing was sent
      {0, {.kind = Kind::withdraw, .id = 5}},                                 // never told
      {0, {.kind = Kind::expect, .id = 1, .tag = 0, .from = 0, .bytes = 1}},  // nothing was sent
  };
  for (std::size_t at = 0; at < cases.size(); ++at) {
    LinkPair pair(2);
    const FrameHeader header = encode(cases[at].frame);
    EXPECT_EQ(pair.ends[0].in.feed(cases[at].stream, header).taken, Inbox::Taken::nonsense)
        << "case " << at;
  }
  // More than was announced, before it was granted, and twice.
  LinkPair pair(2);
  const auto feed = [&](const StreamFrame& frame) {
    return pair.ends[0].in.feed(0, encode(frame)).taken;
  };
  EXPECT_EQ(feed({.kind = Kind::announce, .id = 0, .tag = 3, .from = 0, .bytes = 10}),
            Inbox::Taken::yes);
  EXPECT_EQ(feed({.kind = Kind::piece, .id = 0, .tag = 0, .from = 0, .bytes = 5}),
            Inbox::Taken::nonsense);
}

std::uint64_t tag_of(std::uint64_t communicator, std::uint64_t tag) {
  return communicator << (tag_bits - 1 - communicator_bits) | tag;
}

// Messages of a communicator that has failed, before and after this end hears of it, take neither
// room nor credit from those of another.
TEST(SocketLink, drops_what_no_receive_will_ask_for) {
  for (const std::size_t streams : {1u, 3u}) {
    LinkPair pair(streams, 100'000, 5 * most_unasked);
    std::deque<MessageRequest> sends;
    std::deque<std::vector<std::byte>> letters;
    const auto send = [&](std::uint64_t tag, std::size_t bytes) {
      letters.push_back(pattern(bytes, tag));
      pair.ends[0].send(sends.emplace_back(), tag, letters.back());
    };
    const auto send_all = [&](std::uint64_t communicator) {
      for (const std::size_t bytes : lengths) {
        send(tag_of(communicator, bytes), bytes);
      }
    };
    send_all(7);
    pair.drive();
    EXPECT_TRUE(pair.ends[1].in.probe(tag_of(7, 1)));
    pair.rules.forget(7);
    pair.ends[1].in.drop_forgotten();
    EXPECT_FALSE(pair.ends[1].in.probe(tag_of(7, 1)));
    for (int round = 0; round < 3; ++round) {
      send_all(7);
      pair.drive();
    }
    EXPECT_FALSE(pair.ends[1].in.probe(tag_of(7, 1)));
    // The failure has reached the sender, who gives up what nobody has asked for.
    for (MessageRequest& one : sends) {
      EXPECT_TRUE(one.state != State::posted || pair.ends[0].cancel(one));
    }
    pair.drive();
    for (int round = 0; round < 3; ++round) {
      for (const std::size_t bytes : lengths) {
        send(tag_of(8, bytes), bytes);
        pair.drive();
        std::vector<std::byte> got(bytes);
        MessageRequest recv;
        pair.ends[1].in.recv(recv, tag_of(8, bytes), got);
        pair.drive();
        EXPECT_EQ(recv.state, State::done) << bytes << " bytes, " << streams << " streams";
        EXPECT_EQ(sends.back().state, State::done);
        EXPECT_TRUE(same_bytes(got, letters.back()));
      }
    }
  }
}

/// A message, and who has given it up.
struct Mail {
  std::vector<std::byte> sent = {}, got = {};
  std::vector<std::byte> left = {};  ///< What `got` was when its receive was given up.
  MessageRequest send = {}, recv = {};
  bool send_given_up = false, recv_given_up = false;
};

/// Gives up one side of it, if that is under way; whoever does has its memory back at once.
void give_up(LinkPair& pair, Mail& mail, bool sender) {
  MessageRequest& request = sender ? mail.send : mail.recv;
  if (request.state != State::posted) {
    return;
  }
  ASSERT_TRUE(pair.ends[sender ? 0 : 1].cancel(request));
  ASSERT_EQ(request.state, State::failed);
  (sender ? mail.send_given_up : mail.recv_given_up) = true;
  if (sender) {
    std::ranges::fill(mail.sent, std::byte{0xee});
  } else {
    mail.left = mail.got;
  }
}

/// What may have become of it once nothing moves any more.
void check_end(const Mail& mail, std::uint64_t seed) {
  if (mail.recv_given_up) {
    EXPECT_TRUE(mail.got == mail.left) << "was touched";
  } else if (mail.recv.state == State::done) {
    EXPECT_TRUE(mail.got == pattern(mail.got.size(), seed));
  } else {
    EXPECT_TRUE(mail.send_given_up) << "has not arrived: " << mail.got.size() << " bytes";
  }
  EXPECT_TRUE(mail.send.state == State::done || mail.send_given_up || mail.recv_given_up);
}

/// Any order of sends, receives, parts of streams and withdrawals, of one communicator after the
/// other: what has ended is touched no more, all else arrives, and nothing of the credit or of the
/// room for what nobody asked for is lost.
TEST(SocketLink, withdraws_random_letters_and_loses_neither_credit_nor_room) {
  constexpr std::uint64_t communicators = 8;
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    for (const std::size_t streams : {1u, 3u}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << streams << " streams");
      std::mt19937 random(seed);
      LinkPair pair(streams, 40'000, 6 * most_unasked);
      for (std::uint64_t communicator = 1; communicator <= communicators; ++communicator) {
        std::deque<Mail> mails;
        std::vector<std::size_t> order;
        for (std::size_t at = 0; at < 60; ++at) {
          const std::size_t bytes = random() % (at % 10 == 0  ? 2'000'000
                                                : at % 3 == 0 ? 90'000
                                                              : 99);
          mails.push_back({.sent = pattern(bytes, at), .got = std::vector<std::byte>(bytes)});
          order.push_back(at);
        }
        std::shuffle(order.begin(), order.end(), random);
        std::size_t sent = 0, received = 0;
        for (int round = 0; round < 3'000; ++round) {
          const unsigned what = random() % 32;
          if (what < 2 && sent < mails.size()) {
            pair.ends[0].send(mails[sent].send, tag_of(communicator, sent), mails[sent].sent);
            ++sent;
          } else if (what < 4 && received < order.size()) {
            Mail& mail = mails[order[received]];
            pair.ends[1].in.recv(mail.recv, tag_of(communicator, order[received]), mail.got);
            ++received;
          } else if (what < 6) {
            give_up(pair, mails[random() % mails.size()], what == 4);
          } else {
            const std::size_t end = random() % 2, stream = random() % streams;
            pair.write(end, stream, random() % 50'000);
            ASSERT_NE(pair.read(end, stream, random() % 50'000), Inbox::Taken::nonsense);
          }
        }
        ASSERT_TRUE(sent == mails.size() && received == order.size());
        pair.drive();
        pair.rules.forget(communicator);
        pair.ends[1].in.drop_forgotten();
        for (std::size_t at = 0; at < mails.size(); ++at) {
          check_end(mails[at], at);
          give_up(pair, mails[at], true);
          give_up(pair, mails[at], false);
        }
        pair.drive();
      }
      // A quarter of the credit may be owed still; what was lost would add up.
      constexpr std::size_t bytes = 100'000, count = 60;
      const auto letter = pattern(bytes, 1);
      std::deque<Mail> last(count);
      for (std::size_t at = 0; at < count; ++at) {
        pair.ends[0].send(last[at].send, tag_of(100, at), letter);
      }
      pair.drive();
      const auto gone = std::ranges::count_if(
          last, [](const Mail& one) { return one.send.state == State::done; });
      EXPECT_GE(static_cast<std::size_t>(gone),
                (Outbox::credit_bytes - Outbox::most_owed) / (bytes + frame_bytes));
      for (std::size_t at = 0; at < count; ++at) {
        last[at].got.resize(bytes);
        pair.ends[1].in.recv(last[at].recv, tag_of(100, at), last[at].got);
      }
      pair.drive();
      for (const Mail& one : last) {
        EXPECT_EQ(one.recv.state, State::done);
        EXPECT_TRUE(one.got == letter);
      }
    }
  }
}

/// Any order of sends, receives and parts of streams.
TEST(SocketLink, carries_random_letters_in_random_parts) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    for (const std::size_t streams : {1u, 3u}) {
      std::mt19937 random(seed);
      LinkPair pair(streams, 40'000);
      std::deque<Mail> mails;
      std::vector<std::size_t> order;
      for (std::size_t at = 0; at < 200; ++at) {
        const std::size_t bytes = random() % (at % 20 == 0 ? 2'000'000 : at % 3 == 0 ? 60'000 : 99);
        mails.push_back({.sent = pattern(bytes, at), .got = std::vector<std::byte>(bytes)});
        order.push_back(at);
      }
      std::shuffle(order.begin(), order.end(), random);
      std::size_t sent = 0, received = 0;
      for (int round = 0; round < 2'000'000; ++round) {
        const unsigned what = random() % 16;
        if (what == 0 && sent < mails.size()) {
          pair.ends[0].send(mails[sent].send, sent, mails[sent].sent);
          ++sent;
        } else if (what == 1 && received < order.size()) {
          Mail& mail = mails[order[received]];
          pair.ends[1].in.recv(mail.recv, order[received], mail.got);
          ++received;
        } else {
          const std::size_t end = random() % 2, stream = random() % streams;
          const std::size_t bytes = random() % 50'000;
          pair.write(end, stream, bytes);
          ASSERT_NE(pair.read(end, stream, random() % 50'000), Inbox::Taken::nonsense);
        }
        if (received == order.size() && sent == mails.size() &&
            std::ranges::all_of(mails,
                                [](const Mail& one) { return one.recv.state != State::posted; })) {
          break;
        }
      }
      for (std::size_t at = 0; at < mails.size(); ++at) {
        ASSERT_EQ(mails[at].recv.state, State::done) << "seed " << seed << " letter " << at;
        ASSERT_TRUE(mails[at].got == mails[at].sent) << "seed " << seed << " letter " << at;
      }
    }
  }
}

}  // namespace
}  // namespace sprat::comm::sockets
