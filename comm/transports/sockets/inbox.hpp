// What comes to one rank from one peer: which receive it belongs to, and where its bytes go. Knows
// no sockets, and never waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/transports/request_queue.hpp"
#include "comm/transports/sockets/outbox.hpp"
#include "comm/transports/sockets/stream_frame.hpp"
#include "comm/transports/transport.hpp"
#include "comm/transports/unexpected.hpp"

namespace sprat::comm::sockets {

/// Where the next bytes of a stream belong: so many, and nowhere if null.
struct Incoming {
  std::byte* place = nullptr;
  std::size_t bytes = 0;
};

/// A message that has come, or comes, but for those that come whole to a receive.
struct Arrival {
  enum class State : std::uint8_t {
    announced,  ///< Waits for a receive.
    kept,       ///< Comes unasked into memory of its own, with or without a receive.
    placed,     ///< Comes into its receive.
    dropped     ///< Nobody wants it.
  };
  State state = State::announced;
  std::optional<std::uint32_t> id = std::nullopt;  ///< If it comes in pieces.
  std::uint64_t tag = 0;
  std::size_t bytes = 0, begun = 0, received = 0;
  MessageRequest* request = nullptr;  ///< Its receive.
  std::unique_ptr<std::byte[]> data = nullptr;
};

class Inbox {
 public:
  /// `unexpected.most_bytes` may be kept of messages and announcements that no receive has asked
  /// for; what is more stays in the stream. Replies go to `out`. Both outlive this.
  Inbox(Outbox& out, const UnexpectedRules& unexpected)
      : out_(out),
        rules_(unexpected),
        unexpected_room_(unexpected.most_bytes),
        in_(out.streams()) {}

  // --- the caller's side ------------------------------------------------------------------------
  /// One that a long message may be for tells the peer that it waits, if `tells`: more has to be
  /// written then.
  void recv(MessageRequest& request, std::uint64_t tag, std::span<std::byte> data,
            bool tells = true);
  /// Bytes of the first message that has come, or been announced, and no receive has asked for.
  std::optional<std::size_t> probe(std::uint64_t tag) const;
  /// Whether there is such a message, of any tag.
  bool has_unasked() const;
  /// Whether it is a receive of this peer's, which has ended by that.
  bool cancel(MessageRequest& request) noexcept;
  /// Ends everything but what has come whole. Nothing else comes.
  void break_off(int error) noexcept;
  /// Lets go of what no receive has asked for and no receive will, by the rules of now.
  void drop_forgotten() noexcept;
  /// Something waits for bytes of the peer's.
  bool awaits_peer() const { return !posted_.empty() || receiving_ > 0; }

  // --- the streams' side ------------------------------------------------------------------------
  /// What is left of the bytes of a message, if the stream is in the midst of some.
  Incoming incoming(std::size_t stream) const noexcept {
    return {in_[stream].place, in_[stream].left};
  }
  /// So many bytes of incoming() have been put there, or dropped if they belong nowhere.
  void placed(std::size_t stream, std::size_t bytes) noexcept;
  enum class Taken : std::uint8_t {
    yes,
    not_yet,  ///< There is no room, or another stream has to bring what it belongs to.
    nonsense
  };
  struct Fed {
    std::size_t bytes;  ///< Of those given.
    Taken taken;
  };
  /// What a stream has read, in order. After Taken::not_yet it is called again, with nothing too.
  Fed feed(std::size_t stream, std::span<const std::byte> bytes) noexcept;

 private:
  /// The frame that a stream reads.
  struct InStream {
    FrameReader header = {};
    std::byte* place = nullptr;  ///< Of what is left.
    std::size_t body = 0, left = 0;
    MessageRequest* whole = nullptr;  ///< The receive of a message that comes whole.
    Arrival* arrival = nullptr;       ///< What the bytes are of otherwise; null: dropped.
  };

  Taken take(std::size_t stream, const StreamFrame& frame) noexcept;
  Taken take_message(InStream& in, const StreamFrame& frame) noexcept;
  Taken take_number(const StreamFrame& frame) noexcept;
  void match(Arrival& arrival, MessageRequest& request) noexcept;
  Taken take_piece(std::size_t stream, const StreamFrame& frame) noexcept;
  Taken take_withdrawal(const StreamFrame& frame) noexcept;
  void begin_body(InStream& in, const StreamFrame& frame, std::byte* place) noexcept;
  void end_body(InStream& in) noexcept;
  bool has_spare() noexcept;
  Arrival* make_arrival(const StreamFrame& frame, Arrival::State state) noexcept;
  void accept(Arrival& arrival, MessageRequest& request) noexcept;
  void hand_over(Arrival& arrival, MessageRequest& request) noexcept;
  void drop(Arrival& arrival) noexcept;
  void settle(Arrival& arrival) noexcept;
  void forget(Arrival& arrival) noexcept;
  Arrival* find(std::uint32_t id) noexcept;

  Outbox& out_;
  const UnexpectedRules& rules_;
  RequestQueue posted_;          ///< Receives that no message has matched.
  std::list<Arrival> arrivals_;  ///< In order of arrival.
  std::list<Arrival> spare_;     ///< Of arrivals that are over, for those to come.
  std::size_t receiving_ = 0;    ///< Receives whose message is coming.
  std::size_t unexpected_room_;  ///< Bytes that may still be kept.
  std::uint32_t next_id_ = 0;    ///< The peer's numbers come in order.
  std::uint32_t seen_ = 0;       ///< Messages whose headers have come.
  std::vector<InStream> in_;
  int error_ = 0;  ///< Why nothing comes any more.
};

}  // namespace sprat::comm::sockets
