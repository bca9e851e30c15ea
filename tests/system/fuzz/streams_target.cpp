// What comes over sockets between hosts: from a stranger, before it has proved anything, and from a
// peer that sends what it likes. Our reads and writes stay within bounds and our requests end.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/transports/sockets/contact.hpp"
#include "comm/transports/sockets/handshake.hpp"
#include "comm/transports/sockets/link.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

using namespace comm;
using namespace comm::sockets;

constexpr std::size_t streams = 2;

/// The bytes go to whoever listens. Whether they were answered.
bool greet_as_a_stranger(std::span<const std::byte> input) {
  Accepting accepting([](const StreamName& name) {
    return name.to == 0 && name.from == 1 ? std::optional<std::string>("a secret") : std::nullopt;
  });
  bool answered = false;
  while (!input.empty()) {
    const auto room = accepting.input();
    const std::size_t bytes = std::min(room.size(), input.size());
    std::copy_n(input.begin(), bytes, room.begin());
    input = input.subspan(bytes);
    const Greeted greeted = accepting.got(bytes);
    expect(greeted != Greeted::proved, "a stranger proves nothing");
    expect(accepting.output().size() <= nonce_bytes + proof_bytes,
           "a stranger hears a greeting only");
    answered |= !accepting.output().empty();
    accepting.wrote(accepting.output().size());
    if (greeted == Greeted::wrong) {
      break;
    }
  }
  return answered;
}

/// Parts [stream, length, bytes]; what this end answers is thrown away. Whether all made sense.
bool send_as_a_peer(std::span<const std::byte> input) {
  constexpr std::size_t guard = 64;
  const UnexpectedRules unexpected{std::size_t{1} << 20};
  Link link(streams, unexpected);
  std::array<std::vector<std::byte>, 3> buffers;
  std::array<MessageRequest, 5> requests;
  for (std::size_t at = 0; at < buffers.size(); ++at) {
    const std::size_t bytes = std::size_t{10} << (6 * at);
    buffers[at].assign(bytes + guard, std::byte{0x5a});
    link.in.recv(requests[at], at, std::span(buffers[at]).first(bytes));
  }
  const std::vector<std::byte> short_one(1000, std::byte{1}), long_one(2'000'000, std::byte{2});
  link.send(requests[3], 7, short_one);
  link.send(requests[4], 8, long_one);
  const auto write_all = [&] {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      for (int frame = 0; frame < 8; ++frame) {
        link.out.wrote(stream, link.out.outgoing(stream).bytes());
      }
    }
  };
  bool sense = true;
  for (bool stands = true; stands && input.size() >= 2;) {
    const auto stream = std::to_integer<std::size_t>(input[0]) % streams;
    const std::size_t bytes = std::min(std::to_integer<std::size_t>(input[1]), input.size() - 2);
    const Inbox::Fed fed = link.in.feed(stream, input.subspan(2, bytes));
    expect(fed.bytes <= bytes, "no more is taken than was given");
    expect(fed.taken == Inbox::Taken::yes ? fed.bytes == bytes : true, "what is taken is taken");
    stands = fed.taken == Inbox::Taken::yes;
    sense &= fed.taken != Inbox::Taken::nonsense;
    input = input.subspan(2 + bytes);
    write_all();
    static_cast<void>(link.in.probe(3));
  }
  for (MessageRequest& request : requests) {
    if (request.state == MessageRequest::State::posted) {
      expect(link.cancel(request), "there is memory");
    }
    expect(request.state != MessageRequest::State::posted, "a cancelled request has ended");
  }
  link.break_off(EPROTO);
  for (std::size_t at = 0; at < buffers.size(); ++at) {
    expect(std::ranges::all_of(std::span(buffers[at]).last(guard),
                               [](std::byte byte) { return byte == std::byte{0x5a}; }),
           "nothing is written behind a buffer");
  }
  return sense;
}

}  // namespace

/// The first byte says what the others are.
bool run_streams(std::span<const std::byte> input) {
  if (input.empty()) {
    return false;
  }
  const auto rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 3) {
    case 0:
      return greet_as_a_stranger(rest);
    case 1: {
      const Blob blob(rest.begin(), rest.end());
      const auto contact = decode_contact(blob);
      expect(!contact || encode(*contact) == blob, "an address comes back");
      return contact.has_value();
    }
    default:
      return send_as_a_peer(rest);
  }
}

}  // namespace sprat::fuzz
