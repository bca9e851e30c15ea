// How both ends of a connection show that they know the job's token, without sending it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "comm/encryption/keyed_hash.hpp"

namespace sprat::comm {

// A rank greets with the magic and its nonce. The coordinator answers with the magic, its own nonce
// and its proof; the rank, having checked that, sends its proof. Only then are frames read.
inline constexpr std::size_t magic_bytes = 8, nonce_bytes = 16, proof_bytes = sizeof(KeyedHash);
using Magic = std::array<std::byte, magic_bytes>;
using Nonce = std::array<std::byte, nonce_bytes>;
using Proof = KeyedHash;
/// Never changes: versions are compared in Hello, where a difference can be said in words.
extern const Magic control_magic;
/// In place of it a coordinator answers so, with zeros behind it, to who does not encrypt where it
/// has to.
extern const Magic encrypted_only_magic;

struct Greeting {
  Magic magic = control_magic;
  Nonce nonce{};
};
struct CoordinatorGreeting {
  Magic magic = control_magic;
  Nonce nonce{};
  Proof proof{};
};

enum class Side : unsigned char { coordinator = 'h', rank = 'r' };
/// What `side` proves in a connection with these nonces. A keyed hash (HMAC-SHA256): as strong as
/// the token is hard to guess. Each side has its own, so that none can be sent back.
Proof prove(std::string_view token, Side side, const Nonce& coordinator, const Nonce& rank);
/// In a time that does not depend on the values.
bool equal(const Proof& a, const Proof& b) noexcept;

Nonce random_nonce();
/// 256 random bits, in hexadecimal.
std::string random_token();

}  // namespace sprat::comm
