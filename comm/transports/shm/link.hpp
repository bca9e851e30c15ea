// One rank's messages to and from one peer that shares memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/transports/request_queue.hpp"
#include "comm/transports/shm/frame_ring.hpp"
#include "comm/transports/transport.hpp"
#include "comm/transports/unexpected.hpp"

namespace sprat::comm {

/// Frames go out in this order of precedence: replies to the peer, new messages, pieces of long
/// ones.
class ShmLink {
 public:
  /// `unexpected` may change, with drop_forgotten(), and outlives this.
  ShmLink(FrameLane& mine, const FrameLane& peers, const UnexpectedRules& unexpected)
      : out_(mine, peers), in_(mine, peers), rules_(unexpected) {}

  /// Frames of whole messages that may wait for their receives at the peer, in bytes; past them
  /// messages are announced, however short. So senders that run ahead wait, not memory fill.
  static constexpr std::size_t credit_bytes = std::size_t{1} << 20;

  void send(MessageRequest& request, std::uint64_t tag, std::span<const std::byte> data);
  void recv(MessageRequest& request, std::uint64_t tag, std::span<std::byte> data);
  /// Bytes of the first message that has come, or been announced, and no receive has asked for.
  std::optional<std::size_t> probe(std::uint64_t tag) const;
  bool has_unasked() const { return !unexpected_.empty(); }
  /// Moves at most about one ring of bytes each way; returns whether anything moved.
  bool progress() noexcept;
  void cancel(MessageRequest& request) noexcept;
  void drop_forgotten() noexcept;

 private:
  enum class Taken { yes, not_yet, nonsense };

  /// A message that came, or was announced, before its receive.
  struct Unexpected {
    std::uint64_t tag, id;
    std::size_t bytes;
    std::unique_ptr<std::byte[]> data;  ///< Null: only announced.
    bool announced;
  };
  /// A long message whose pieces we have asked for.
  struct Inbound {
    std::uint64_t id;
    std::size_t bytes, received;
    MessageRequest* request;  ///< Null once cancelled: its pieces are dropped.
  };

  bool write_replies();
  bool write_new();
  bool write_pieces();
  bool read();
  Taken take(const RingFrame& frame);
  Taken take_message(const RingFrame& frame);
  Taken take_announcement(const RingFrame& frame);
  Taken take_piece(const RingFrame& frame);
  bool keep(const RingFrame& frame, bool announced);
  void accept(MessageRequest& request, std::uint64_t id, std::size_t bytes);
  void withdraw_inbound(std::uint64_t id);
  bool is_forgotten(std::uint64_t tag) const { return rules_.is_forgotten(tag); }
  void owe(std::size_t payload);
  void pay_credit();
  bool has_room() noexcept;
  void reply(FrameKind kind, std::uint64_t id);
  void break_link();

  FrameWriter out_;
  FrameReader in_;
  const UnexpectedRules& rules_;
  RequestQueue new_;        ///< Sends that no frame speaks of yet.
  RequestQueue announced_;  ///< Sends that the peer has not asked for yet.
  RequestQueue granted_;    ///< Sends whose pieces go out, one message after another.
  RequestQueue posted_;     ///< Receives that no message has matched.
  std::vector<Inbound> inbound_;
  std::list<Unexpected> unexpected_;  ///< In order of arrival.
  std::vector<RingFrame> replies_;    ///< Frames without payload that the peer is owed, in order.
  std::size_t withdrawable_ = 0;      ///< Sends in announced_ and granted_.
  std::size_t unexpected_bytes_ = 0;
  std::uint64_t next_id_ = 0;
  std::size_t uncredited_ = 0;  ///< Of frames of ours that the peer has not said to be matched.
  std::size_t owed_ = 0;        ///< Of frames of the peer's that are matched; it does not know yet.
  bool broken_ = false;         ///< The peer's ring held nonsense.
};

}  // namespace sprat::comm
