#include "comm/encryption/token_proof.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

void fill_random(std::span<std::byte> out) {
  while (!out.empty()) {
    // A signal may interrupt the call, or end it early.
    const ssize_t filled = getrandom(out.data(), out.size(), 0);
    need(filled > 0 || errno == EINTR, "the system gives no random bytes");
    out = out.subspan(static_cast<std::size_t>(std::max<ssize_t>(filled, 0)));
  }
}

}  // namespace

Proof prove(std::string_view token, Side side, const Nonce& coordinator, const Nonce& rank) {
  // The side is part of what is hashed, so the coordinator's proof cannot be sent back to it as a
  // rank's. Both numbers are too, so an old proof is of no use in another connection.
  std::vector<std::byte> message{static_cast<std::byte>(side)};
  for (const Nonce* nonce : {&coordinator, &rank}) {
    message.insert(message.end(), nonce->begin(), nonce->end());
  }
  return keyed_hash(token, message);
}

bool equal(const Proof& a, const Proof& b) noexcept { return same_in_constant_time(a, b); }

Nonce random_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

std::string random_token() {
  std::array<std::byte, 32> bits;
  fill_random(bits);
  std::string token;
  for (const std::byte byte : bits) {
    token += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return token;
}

}  // namespace sprat::comm
