#include "comm/encryption/keyed_hash.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "comm/base/check.hpp"

namespace sprat::comm {

// Every use of OpenSSL here begins with a hash, encrypted connections' too. It shall not clean up
// at exit: a job may be left by a destructor that runs later, and threads that still take leave of
// others would find locks of its gone.
KeyedHash keyed_hash(std::string_view key, std::span<const std::byte> message) {
  static_assert(std::tuple_size_v<KeyedHash> == SHA256_DIGEST_LENGTH);
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  KeyedHash hash{};
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(hash.data()), nullptr);
  need(made != nullptr, "libcrypto does not compute HMAC-SHA256");
  return hash;
}

bool same_in_constant_time(const KeyedHash& a, const KeyedHash& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace sprat::comm
