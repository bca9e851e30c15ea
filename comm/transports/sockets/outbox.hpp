// What one rank sends to one peer: which frame each stream carries next. Knows no sockets, and
// never waits.
//
// Short messages go at once, as long as less than `credit_bytes` of them may be waiting at the peer
// for their receives. Past that, and if they are long, messages are announced: they wait here, and
// their bytes go once a receive has asked for them, or at once if one is known to wait. So what
// nobody receives holds up nothing else, and what a peer has to keep is bounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/transports/request_queue.hpp"
#include "comm/transports/sockets/peer_receives.hpp"
#include "comm/transports/sockets/stream_frame.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::comm::sockets {

/// The memory of a frame that a stream writes. Empty: it has nothing to write.
struct Outgoing {
  std::span<const std::byte> header, body;
  std::size_t bytes() const { return header.size() + body.size(); }
};

class Outbox {
 public:
  /// Bytes that may be sent without being asked for, and not yet matched with receives.
  static constexpr std::size_t credit_bytes = std::size_t{4} << 20;
  /// Of those a receiver has matched it keeps as many or fewer to itself.
  static constexpr std::size_t most_owed = credit_bytes / 2;
  /// So many frames a stream may have begun and not written.
  static constexpr std::size_t frames_at_once = 8;

  explicit Outbox(std::size_t streams) : out_(streams) {}

  // --- the caller's side ------------------------------------------------------------------------
  void send(MessageRequest& request, std::uint64_t tag, std::span<const std::byte> data);
  /// Of a send of this peer's that is posted. False if memory has run out: then it goes on until
  /// break_off().
  [[nodiscard]] bool cancel(MessageRequest& request) noexcept;
  /// Ends all that is posted.
  void break_off(int error) noexcept;

  // --- the streams' side ------------------------------------------------------------------------
  /// The first frame. Stays the same until wrote(), cancel() or break_off().
  Outgoing outgoing(std::size_t stream) noexcept;
  /// That and those behind it, until they have `most_bytes` or more; how many `frames` they fill.
  std::size_t outgoing(std::size_t stream, std::span<Outgoing> frames,
                       std::size_t most_bytes) noexcept;
  /// Some of the first frame are on their way, and cannot be taken back: wrote() follows.
  void commit(std::size_t stream) noexcept { out_[stream].committed = true; }
  /// So many bytes of the frames that outgoing() has given have gone.
  void wrote(std::size_t stream, std::size_t bytes) noexcept;
  std::size_t streams() const { return out_.size(); }
  /// Pieces wait for a stream.
  bool has_pieces() const { return !granted_.empty(); }
  /// Before the next message is announced it pays to read whether the peer expects it.
  bool would_announce() const { return !new_.empty() && !goes_unasked(*new_.front()); }
  /// Something waits for a word of the peer's.
  bool awaits_peer() const { return !announced_.empty() || !new_.empty(); }

  // --- what the peer says; false if it makes no sense -------------------------------------------
  bool take_grant(std::uint32_t id) noexcept;
  bool take_refusal(std::uint32_t id) noexcept;
  bool take_credit(std::uint64_t bytes) noexcept;
  bool take_expectation(const PeerReceive& receive) noexcept { return receives_.note(receive); }

  // --- what the peer is told --------------------------------------------------------------------
  /// Whether one more reply can be noted: makes room for it.
  bool has_room() noexcept;
  /// If has_room() has said so.
  void reply(const StreamFrame& frame) noexcept { replies_.push_back(frame); }
  /// A message of so many bytes that came unasked has its receive, so the peer may send as much
  /// again.
  void owe(std::size_t bytes) noexcept;

 private:
  struct OutFrame {
    FrameHeader header{};
    std::span<const std::byte> body = {};
    bool whole = false;                           ///< The body is a whole message.
    bool tells_number = false;                    ///< Of a message that goes in pieces.
    MessageRequest* request = nullptr;            ///< Whose frame it is; null: nobody's.
    std::unique_ptr<std::byte[]> copy = nullptr;  ///< The body, if its message was given up.
  };
  /// What a stream writes: the frames that are begun, the first of which is being written.
  struct OutStream {
    std::array<OutFrame, frames_at_once> frames{};
    std::size_t begun = 0;
    std::size_t written = 0;  ///< Of the first frame.
    bool committed = false;   ///< Some of what is not written of it is on its way.
  };

  bool goes_unasked(MessageRequest& request) const;
  bool begin_frame(std::size_t stream) noexcept;
  bool begin_message(OutFrame& frame) noexcept;
  bool begin_piece(OutFrame& frame) noexcept;
  static void take_out(OutStream& out, std::size_t frame) noexcept;
  void end_first(OutStream& out) noexcept;
  bool give_up(OutStream& out, std::size_t frame) noexcept;

  RequestQueue new_;        ///< No frame speaks of them yet.
  RequestQueue announced_;  ///< The peer has not asked for them yet.
  RequestQueue granted_;    ///< Not all pieces of them are begun.
  PeerReceives receives_;
  std::vector<StreamFrame> replies_;  ///< To be written before all else, in order.
  std::vector<OutStream> out_;
  std::size_t withdrawable_ = 0;  ///< In announced_ and granted_.
  std::size_t uncredited_ = 0;    ///< Sent unasked; the peer has not said that it has receives.
  std::size_t owed_ = 0;          ///< Came unasked and has receives; the peer does not know yet.
  std::uint32_t next_id_ = 0;
};

}  // namespace sprat::comm::sockets
