// HMAC-SHA256: how one shows to know a secret without telling it, and makes keys of it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace sprat::comm {

using KeyedHash = std::array<std::byte, 32>;
/// As strong as the key is hard to guess. On any thread, also while the process exits.
KeyedHash keyed_hash(std::string_view key, std::span<const std::byte> message);

/// In a time that does not depend on the values.
bool same_in_constant_time(const KeyedHash& a, const KeyedHash& b) noexcept;

}  // namespace sprat::comm
