#include "comm/endpoint/invitation.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "comm/encryption/token_proof.hpp"
#include "comm/transports/sockets/stream_plan.hpp"

namespace sprat::comm::endpoint {
namespace {

/// Another byte order makes it another number; the last digit is the version.
constexpr std::uint32_t magic = 0x53504e31;

struct Fields {
  std::uint32_t magic = endpoint::magic;
  std::uint16_t streams = 0, port = 0;
  std::uint8_t v6 = 0;
  std::array<std::uint8_t, 7> none{};
  std::array<std::uint8_t, 16> address{};
  std::array<std::byte, key_bytes> key{};
};
static_assert(sizeof(Fields) == invitation_bytes);

}  // namespace

Invitation invite(const sockets::NetAddress& address, std::size_t streams) {
  Invitation invitation{.address = address, .streams = static_cast<std::uint16_t>(streams)};
  const Nonce first = random_nonce(), second = random_nonce();
  std::copy(first.begin(), first.end(), invitation.key.begin());
  std::copy(second.begin(), second.end(), invitation.key.begin() + nonce_bytes);
  return invitation;
}

InvitationBytes encode(const Invitation& invitation) {
  Fields fields;
  fields.streams = invitation.streams;
  fields.port = invitation.address.port;
  fields.v6 = invitation.address.v6 ? 1 : 0;
  fields.address = invitation.address.bytes;
  fields.key = invitation.key;
  return std::bit_cast<InvitationBytes>(fields);
}

std::optional<Invitation> decode(const InvitationBytes& bytes) {
  const auto fields = std::bit_cast<Fields>(bytes);
  if (fields.magic != magic || fields.v6 > 1 || fields.port == 0 || fields.streams == 0 ||
      fields.streams > sockets::most_streams) {
    return std::nullopt;
  }
  return Invitation{.address = {.v6 = fields.v6 == 1, .bytes = fields.address, .port = fields.port},
                    .key = fields.key,
                    .streams = fields.streams};
}

std::string key_of(const Invitation& invitation, const sockets::StreamName& name) {
  const std::string_view key(reinterpret_cast<const char*>(invitation.key.data()), key_bytes);
  return sockets::stream_key("endpoint ", key, name);
}

}  // namespace sprat::comm::endpoint
