// What a rank and the coordinator say first to each other.
//
// A rank greets with the magic and its nonce. The coordinator answers with the magic, its own nonce
// and its proof; the rank, having checked that, sends its proof. Only then are frames read.
#pragma once

#include <array>
#include <cstddef>

#include "comm/encryption/token_proof.hpp"

namespace sprat::comm {

inline constexpr std::size_t magic_bytes = 8;
using Magic = std::array<std::byte, magic_bytes>;

constexpr Magic magic_of(const char (&text)[magic_bytes + 1]) {
  Magic magic{};
  for (std::size_t i = 0; i < magic_bytes; ++i) {
    magic[i] = static_cast<std::byte>(text[i]);
  }
  return magic;
}

/// Never changes: versions are compared in Hello, where a difference can be said in words. The last
/// bytes are no text, so that a protocol of text lines does not send them by accident.
inline constexpr Magic control_magic = magic_of("SPRAT\r\n\x01");
/// In place of it a coordinator answers so, with zeros behind it, to who does not encrypt where it
/// has to.
inline constexpr Magic encrypted_only_magic = magic_of("SPRAT\r\n\x03");

struct Greeting {
  Magic magic = control_magic;
  Nonce nonce{};
};
struct CoordinatorGreeting {
  Magic magic = control_magic;
  Nonce nonce{};
  Proof proof{};
};

}  // namespace sprat::comm
