#include "comm/coordinator/message_question.hpp"

namespace sprat::comm {
namespace {

// A collective's number does not reach the highest bit in centuries.
constexpr int marker_bit = 63, direction_bit = 62;
constexpr int rank_bits = 15, asker_bit = 47, peer_bit = 32;
constexpr std::uint64_t rank_mask = (std::uint64_t{1} << rank_bits) - 1;
constexpr std::uint32_t count_mask = (std::uint32_t{1} << 30) - 1;

/// a - b where both wrap at 30 bits: negative if a is the smaller one.
std::int32_t difference(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 2) >> 2;
}

}  // namespace

std::optional<std::uint64_t> encode(const MessageQuestion& question) {
  const auto asker = static_cast<std::uint64_t>(question.asker);
  const auto peer = static_cast<std::uint64_t>(question.peer);
  if (asker > rank_mask || peer > rank_mask) {
    return std::nullopt;
  }
  return std::uint64_t{1} << marker_bit | std::uint64_t{question.sends} << direction_bit |
         asker << asker_bit | peer << peer_bit | (question.count & count_mask);
}

std::optional<MessageQuestion> decode_question(std::uint64_t sequence) {
  if (sequence >> marker_bit == 0) {
    return std::nullopt;
  }
  return MessageQuestion{.sends = (sequence >> direction_bit & 1) != 0,
                         .asker = static_cast<int>(sequence >> asker_bit & rank_mask),
                         .peer = static_cast<int>(sequence >> peer_bit & rank_mask),
                         .count = static_cast<std::uint32_t>(sequence) & count_mask};
}

bool is_lost(const MessageQuestion& question, std::uint32_t sent, std::uint32_t received) {
  // A sender that has more under way than were received waits for one that never will be. A
  // receiver has had all that was sent, or the rest is still on its way, or has another tag: then
  // nobody can tell, and its deadline decides.
  return question.sends ? difference(question.count, received) > 0
                        : difference(question.count, sent) >= 0;
}

}  // namespace sprat::comm
