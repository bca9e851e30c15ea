#include "comm/transports/sockets/handshake.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::comm::sockets {
namespace {

/// As the coordinator's, but for the last byte: a stream and a control connection are no use to
/// each other. The number is of the version; another byte order makes it another one.
constexpr std::uint32_t stream_version = 2;
constexpr std::array<char, 8> stream_magic = {'S', 'P', 'R', 'A', 'T', '\r', '\n', '\x02'};
/// What who listens says at last.
constexpr std::byte it_stands{0x5a}, it_is_crossed{0xa5};

struct HelloFields {
  std::array<char, 8> magic = stream_magic;
  std::uint32_t version = stream_version, from = 0, to = 0, stream = 0;
  Nonce nonce{};
};
static_assert(sizeof(HelloFields) == hello_bytes);

constexpr std::size_t challenge_bytes = nonce_bytes + proof_bytes;

struct Challenge {
  Nonce nonce{};
  Proof proof{};
};
static_assert(sizeof(Challenge) == challenge_bytes);

}  // namespace

HelloBytes encode(const StreamHello& hello) {
  HelloFields fields;
  fields.from = static_cast<std::uint32_t>(hello.name.from);
  fields.to = static_cast<std::uint32_t>(hello.name.to);
  fields.stream = static_cast<std::uint32_t>(hello.name.stream);
  fields.nonce = hello.nonce;
  return std::bit_cast<HelloBytes>(fields);
}

std::optional<StreamHello> decode(const HelloBytes& bytes) {
  const auto fields = std::bit_cast<HelloFields>(bytes);
  constexpr std::uint32_t most = 1u << 30;
  if (fields.magic != stream_magic || fields.version != stream_version || fields.from > most ||
      fields.to > most) {
    return std::nullopt;
  }
  return StreamHello{.name = {.from = static_cast<int>(fields.from),
                              .to = static_cast<int>(fields.to),
                              .stream = fields.stream},
                     .nonce = fields.nonce};
}

void Portion::put(std::span<const std::byte> bytes) {
  expect(bytes.size());
  std::copy_n(bytes.data(), bytes.size(), room_.data());
}

Connecting::Connecting(const StreamName& name, std::string key)
    : hello_{.name = name, .nonce = random_nonce()}, key_(std::move(key)) {
  out_.put(encode(hello_));
  in_.expect(challenge_bytes);
}

Greeted Connecting::got(std::size_t bytes) {
  in_.advance(bytes);
  if (!in_.whole()) {
    return Greeted::not_yet;
  }
  if (phase_ == Phase::verdict) {
    const std::byte verdict = in_.bytes().front();
    return verdict == it_stands       ? Greeted::stands
           : verdict == it_is_crossed ? Greeted::crossed
                                      : Greeted::wrong;
  }
  Challenge challenge;
  std::memcpy(&challenge, in_.bytes().data(), sizeof challenge);
  if (!out_.whole() ||  // an answer to what has not been asked
      !equal(challenge.proof, prove(key_, Side::coordinator, challenge.nonce, hello_.nonce))) {
    return Greeted::wrong;
  }
  out_.put(prove(key_, Side::rank, challenge.nonce, hello_.nonce));
  in_.expect(1);
  phase_ = Phase::verdict;
  return Greeted::not_yet;
}

Accepting::Accepting(Keys keys) : keys_(std::move(keys)) { in_.expect(hello_bytes); }

Greeted Accepting::got(std::size_t bytes) {
  in_.advance(bytes);
  if (!in_.whole() || phase_ == Phase::proved) {
    return Greeted::not_yet;
  }
  if (phase_ == Phase::proof) {
    Proof proof;
    std::memcpy(&proof, in_.bytes().data(), sizeof proof);
    // In constant time: how long it takes must not tell how much of a guess was right.
    if (!equal(proof, prove(key_, Side::rank, nonce_, hello_.nonce))) {
      return Greeted::wrong;
    }
    phase_ = Phase::proved;
    in_.expect(0);
    return Greeted::proved;
  }
  HelloBytes hello;
  std::memcpy(hello.data(), in_.bytes().data(), hello.size());
  const auto said = decode(hello);
  auto key = said ? keys_(said->name) : std::nullopt;
  // Nothing is sent to whoever does not speak our protocol.
  if (!key) {
    return Greeted::wrong;
  }
  hello_ = *said;
  key_ = std::move(*key);
  nonce_ = random_nonce();
  const Challenge challenge{nonce_, prove(key_, Side::coordinator, nonce_, hello_.nonce)};
  out_.put(std::as_bytes(std::span(&challenge, 1)));
  in_.expect(proof_bytes);
  phase_ = Phase::proof;
  return Greeted::not_yet;
}

void Accepting::answer(bool stands) { out_.put(std::array{stands ? it_stands : it_is_crossed}); }

// Names are part of it, so a proof for one stream is of no use for another.
std::string stream_key(std::string_view low, std::string_view high, const StreamName& name) {
  return text("stream ", name.stream, " from ", name.from, " to ", name.to, ": ", low, high);
}

}  // namespace sprat::comm::sockets
