// One rank's messages to and from one peer, over any number of streams. Knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/transports/sockets/inbox.hpp"
#include "comm/transports/sockets/outbox.hpp"

namespace sprat::comm::sockets {

/// The verbs of a caller; streams speak to `out` and `in`.
class Link {
 public:
  /// `unexpected` may change, with in.drop_forgotten(), and outlives this.
  Link(std::size_t streams, const UnexpectedRules& unexpected)
      : out(streams), in(out, unexpected) {}

  void send(MessageRequest& request, std::uint64_t tag, std::span<const std::byte> data) {
    out.send(request, tag, data);
    if (error_ != 0) {
      out.break_off(error_);
    }
  }
  /// False if memory has run out: then the request goes on until break_off().
  [[nodiscard]] bool cancel(MessageRequest& request) noexcept {
    return in.cancel(request) || out.cancel(request);
  }
  /// No byte comes or goes any more. Ends everything but what has come whole.
  void break_off(int error) noexcept {
    error_ = error;
    in.break_off(error);
    out.break_off(error);
  }
  bool broken() const { return error_ != 0; }
  /// Something of this rank's waits for bytes of the peer's.
  bool awaits_peer() const { return in.awaits_peer() || out.awaits_peer(); }

  Outbox out;
  Inbox in;

 private:
  int error_ = 0;
};

}  // namespace sprat::comm::sockets
