// What a rank asks about a message that does not come: has the peer freed the communicator?
//
// It travels as the sequence of a stalled message, a query and an answer, in place of the number of
// a collective. So the coordinator keeps nothing of it, and a question costs two frames besides the
// peer's answer, however many ranks there are.
#pragma once

#include <cstdint>
#include <optional>

namespace sprat::comm {

struct MessageQuestion {
  bool sends = false;  ///< Whether the asker sends to the peer, or receives from it.
  int asker = 0, peer = 0;
  /// The messages that the asker has begun to send to the peer, or has received from it, on this
  /// communicator. 30 bits are compared.
  std::uint32_t count = 0;
};

/// Nothing for ranks that the bits do not hold, from 32,768 on: they are not asked.
std::optional<std::uint64_t> encode(const MessageQuestion& question);
/// Nothing if the sequence is a collective's. The ranks are foreign numbers.
std::optional<MessageQuestion> decode_question(std::uint64_t sequence);
/// Whether a message that the asker waits for can never come, now that the peer has freed the
/// communicator on which it had begun to send `sent` messages to the asker and received `received`
/// of its. One that was sent may still be on its way.
bool is_lost(const MessageQuestion& question, std::uint32_t sent, std::uint32_t received);

}  // namespace sprat::comm
