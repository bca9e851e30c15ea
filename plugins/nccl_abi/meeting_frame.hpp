// What goes over a connection to the store of an ncclUniqueId: one request, one answer.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "plugins/nccl_abi/unique_id.hpp"

namespace sprat::nccl {

enum class Verb : std::uint8_t { set, get, remove };

/// Before `name_bytes` of the name and `value_bytes` of the value.
struct RequestHead {
  std::array<char, 4> magic{};
  Verb verb{};
  std::uint8_t unused = 0;
  std::uint16_t name_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint32_t patience_ms = 0;  ///< How long a get() waits for the key.
  Key key{};
};
/// Before `bytes` of the value.
struct AnswerHead {
  std::uint32_t found = 0;
  std::uint32_t bytes = 0;
};
inline constexpr std::array<char, 4> request_magic = {'s', 'p', 'n', '1'};
/// Addresses and a token take some hundred bytes. What is longer is not a request of ours.
inline constexpr std::uint32_t most_value_bytes = 64 << 10;
inline constexpr std::uint16_t most_name_bytes = 256;

template <class Head>
void append(std::string& bytes, const Head& head) {
  bytes.append(reinterpret_cast<const char*>(&head), sizeof(head));
}
template <class Head>
Head head_of(const std::string& bytes) {
  Head head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  return head;
}

}  // namespace sprat::nccl
