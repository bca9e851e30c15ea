#include "comm/encryption/job_key.hpp"

#include <span>
#include <string>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

/// Whoever hears a handshake can try guesses of the token against it at leisure, so a word is none.
/// What people type as one has 16 characters or more; `openssl rand -hex 32` gives 64.
constexpr std::size_t least_token = 16;

}  // namespace

Encryption encryption_of(const Config& config) {
  if (!config.encrypt) {
    return Encryption::off;
  }
  require(config.token.size() >= least_token,
          "SPRAT_ENCRYPT=1 needs a secret to make keys of, and ",
          config.token.empty() ? text("there is no SPRAT_TOKEN")
                               : text("SPRAT_TOKEN has ", config.token.size(), " characters"),
          "; set one of ", least_token,
          " or more, the same on every rank, as from: openssl rand -hex 32");
  require(config.provider.empty() || config.provider == "sockets", "SPRAT_PROVIDER is \"",
          config.provider,
          "\", which is libfabric's and does not encrypt; with SPRAT_ENCRYPT=1 leave it unset");
  return Encryption::on;
}

// RFC 5869. One block of the hash is all that is wanted, so its second step is one hash.
TlsKey derive_key(std::string_view secret, std::string_view salt, std::string_view label) {
  const TlsKey extracted = keyed_hash(salt, std::as_bytes(std::span(secret)));
  const std::string info = std::string(label) + '\x01';
  return keyed_hash({reinterpret_cast<const char*>(extracted.data()), extracted.size()},
                    std::as_bytes(std::span(info)));
}

TlsKey job_key(std::string_view token, KeyUse use) {
  return derive_key(token, "sprat encryption 1", use == KeyUse::control ? "control" : "data");
}

}  // namespace sprat::comm
