// How both ends of a connection show that they know a secret, as the job's token, without sending
// it.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "comm/encryption/keyed_hash.hpp"

namespace sprat::comm {

inline constexpr std::size_t nonce_bytes = 16, proof_bytes = sizeof(KeyedHash);
using Nonce = std::array<std::byte, nonce_bytes>;
using Proof = KeyedHash;

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
