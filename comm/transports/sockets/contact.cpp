#include "comm/transports/sockets/contact.hpp"

#include <arpa/inet.h>

#include <cstring>

#include "comm/base/check.hpp"
#include "comm/transports/sockets/stream_plan.hpp"

namespace sprat::comm::sockets {
namespace {

constexpr std::uint32_t contact_magic = 0x31435053;  // "SPC1"

struct ContactHead {
  std::uint32_t magic = contact_magic, streams_a_rail = 0, rails = 0;
  std::array<std::byte, 32> key{};
};
struct ContactRail {
  std::uint8_t v6 = 0, reserved = 0;
  std::uint16_t port = 0;
  std::array<std::uint8_t, 16> bytes{};
};
static_assert(sizeof(ContactHead) == 44 && sizeof(ContactRail) == 20);

}  // namespace

std::optional<NetAddress> parse_address(const std::string& text, std::uint16_t port) {
  NetAddress address{.port = port};
  if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1) {
    return address;
  }
  address.v6 = true;
  return inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1 ? std::optional(address)
                                                                      : std::nullopt;
}

std::string describe(const NetAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> out{};
  inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), out.data(), out.size());
  return address.v6 ? text("[", out.data(), "]:", address.port)
                    : text(out.data(), ":", address.port);
}

KernelAddress to_kernel(const NetAddress& address) {
  KernelAddress kernel;
  if (address.v6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), sizeof v6.sin6_addr);
    std::memcpy(&kernel.storage, &v6, sizeof v6);
    kernel.bytes = sizeof v6;
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, address.bytes.data(), sizeof v4.sin_addr);
    std::memcpy(&kernel.storage, &v4, sizeof v4);
    kernel.bytes = sizeof v4;
  }
  return kernel;
}

std::uint16_t port_of(const KernelAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address.storage, sizeof v6);
    return ntohs(v6.sin6_port);
  }
  sockaddr_in v4{};
  std::memcpy(&v4, &address.storage, sizeof v4);
  return ntohs(v4.sin_port);
}

Blob encode(const Contact& contact) {
  const ContactHead head{.magic = contact_magic,
                         .streams_a_rail = contact.streams_a_rail,
                         .rails = static_cast<std::uint32_t>(contact.rails.size()),
                         .key = contact.key};
  Blob blob(sizeof head + contact.rails.size() * sizeof(ContactRail));
  std::memcpy(blob.data(), &head, sizeof head);
  for (std::size_t at = 0; at < contact.rails.size(); ++at) {
    const NetAddress& address = contact.rails[at];
    const ContactRail rail{.v6 = static_cast<std::uint8_t>(address.v6 ? 1 : 0),
                           .reserved = 0,
                           .port = address.port,
                           .bytes = address.bytes};
    std::memcpy(blob.data() + sizeof head + at * sizeof rail, &rail, sizeof rail);
  }
  return blob;
}

std::optional<Contact> decode_contact(const Blob& blob) {
  ContactHead head;
  if (blob.size() < sizeof head) {
    return std::nullopt;
  }
  std::memcpy(&head, blob.data(), sizeof head);
  const bool sound = head.magic == contact_magic && head.rails >= 1 && head.rails <= most_rails &&
                     head.streams_a_rail >= 1 && head.streams_a_rail <= most_streams_a_rail &&
                     blob.size() == sizeof head + head.rails * sizeof(ContactRail);
  if (!sound) {
    return std::nullopt;
  }
  Contact contact{.key = head.key, .streams_a_rail = head.streams_a_rail, .rails = {}};
  for (std::size_t at = 0; at < head.rails; ++at) {
    ContactRail rail;
    std::memcpy(&rail, blob.data() + sizeof head + at * sizeof rail, sizeof rail);
    if (rail.v6 > 1 || rail.reserved != 0 || rail.port == 0) {
      return std::nullopt;
    }
    contact.rails.push_back({.v6 = rail.v6 == 1, .bytes = rail.bytes, .port = rail.port});
  }
  return contact;
}

void ContactBook::add(const Blob& encoded) {
  bytes_.insert(bytes_.end(), encoded.begin(), encoded.end());
  ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
}

std::optional<Contact> ContactBook::of(int peer) const {
  const auto place = static_cast<std::size_t>(peer);
  if (peer < 0 || place >= ends_.size()) {
    return std::nullopt;
  }
  const auto at = [this](std::uint32_t offset) { return bytes_.begin() + std::ptrdiff_t{offset}; };
  return decode_contact(Blob(at(place == 0 ? 0 : ends_[place - 1]), at(ends_[place])));
}

}  // namespace sprat::comm::sockets
