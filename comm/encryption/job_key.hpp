// The keys of a job's encrypted connections, made of its token.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/encryption/keyed_hash.hpp"
#include "sprat/config.hpp"

namespace sprat::comm {

enum class Encryption : std::uint8_t { off, on };
/// Whether this job's connections are encrypted. Throws Error{invalid_argument} where they shall be
/// and cannot: without a secret token, or with a provider of libfabric.
Encryption encryption_of(const Config& config);

using TlsKey = KeyedHash;
/// What a key is for: one that leaks from one place opens nothing elsewhere.
enum class KeyUse : std::uint8_t { control, data };
TlsKey job_key(std::string_view token, KeyUse use);

/// HKDF-SHA256 (RFC 5869), of 32 bytes.
TlsKey derive_key(std::string_view secret, std::string_view salt, std::string_view label);

}  // namespace sprat::comm
