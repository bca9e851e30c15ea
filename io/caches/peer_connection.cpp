// Whatever a socket takes or gives at once; the rest waits for epoll.
#include "io/caches/peer_connection.hpp"

#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

struct PeerChallenge {
  PeerNonce nonce{};
  PeerProof proof{};
};
static_assert(sizeof(PeerHello) == 32 && sizeof(PeerChallenge) == 48);
constexpr std::uint64_t hello_magic = 0x314f4c4c'45485053;  // "SPHELLO1"

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

PeerNonce random_nonce() {
  PeerNonce nonce;
  need(::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()),
       "the system gives no random numbers: ", std::strerror(errno));
  return nonce;
}

/// What one side proves. The sides have different first letters, so none can send back the other's.
PeerProof proof_of(char side, const std::string& secret, const PeerHello& hello,
                   const PeerNonce& answer) {
  std::array<std::byte, 1 + sizeof hello + sizeof answer> message{};
  message[0] = static_cast<std::byte>(side);
  std::memcpy(message.data() + 1, &hello, sizeof hello);
  std::memcpy(message.data() + 1 + sizeof hello, &answer, sizeof answer);
  return comm::keyed_hash(secret, message);
}

}  // namespace

bool PieceBuffer::read_from(int descriptor) {
  while (!whole()) {
    const ssize_t got = ::recv(descriptor, bytes_.data() + done_, bytes_.size() - done_, 0);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return got < 0 && would_block();
    }
    done_ += static_cast<std::size_t>(got);
  }
  return true;
}

bool PieceBuffer::write_to(int descriptor) {
  const auto wrote = write_some(descriptor, std::span(bytes_).subspan(done_));
  done_ += wrote.value_or(0);
  return wrote.has_value();
}

std::optional<std::size_t> write_some(int descriptor, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    // MSG_NOSIGNAL: a connection that its other end has closed is an error, not the process's end.
    const ssize_t wrote =
        ::send(descriptor, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote < 0) {
      return would_block() ? std::optional(done) : std::nullopt;
    }
    done += static_cast<std::size_t>(wrote);
  }
  return done;
}

OutgoingConnection::OutgoingConnection(OwnedDescriptor socket, std::uint32_t from, std::uint32_t to)
    : socket_(std::move(socket)),
      hello_{.magic = hello_magic, .from = from, .to = to, .nonce = random_nonce()} {}

OutgoingConnection::Step OutgoingConnection::go_on(const std::string& secret) {
  if (state_ == State::connecting) {
    out_.put(hello_);
    in_.begin(sizeof(PeerChallenge));
    state_ = State::greeting;
  }
  if (!out_.write_to(descriptor())) {
    return Step::ended;
  }
  if (state_ == State::ready) {
    // Nothing is ever said on this connection but by us: what can be read is its end.
    std::byte any{};
    const ssize_t got = ::recv(descriptor(), &any, 1, MSG_PEEK);
    return got < 0 && (would_block() || errno == EINTR) ? Step::goes_on : Step::ended;
  }
  if (!in_.read_from(descriptor())) {
    return Step::ended;
  }
  if (!in_.whole()) {
    return Step::goes_on;
  }
  const auto challenge = in_.as<PeerChallenge>();
  if (!comm::same_in_constant_time(challenge.proof,
                                   proof_of('L', secret, hello_, challenge.nonce))) {
    return Step::not_trusted;
  }
  out_.put(proof_of('C', secret, hello_, challenge.nonce));
  state_ = State::ready;
  return out_.write_to(descriptor()) ? Step::goes_on : Step::ended;
}

std::optional<bool> OutgoingConnection::send(QueuedMessage& message) {
  if (has_to_write()) {
    return false;  // the proof goes first
  }
  while (message.sent < message.bytes()) {
    const std::span<const std::byte> left =
        message.sent < message.header.size()
            ? std::span<const std::byte>(message.header).subspan(message.sent)
            : message.body.subspan(message.sent - message.header.size());
    const auto wrote = write_some(descriptor(), left);
    if (!wrote) {
      return std::nullopt;
    }
    message.sent += *wrote;
    if (*wrote < left.size()) {
      return false;
    }
  }
  return true;
}

IncomingConnection::IncomingConnection(OwnedDescriptor socket) : socket_(std::move(socket)) {
  in_.begin(sizeof(PeerHello));
}

IncomingConnection::Step IncomingConnection::read(const std::string& secret, std::uint32_t here,
                                                  std::size_t hosts) {
  while (true) {
    if (!in_.read_from(descriptor())) {
      return Step::ended;
    }
    if (!in_.whole()) {
      return Step::waits;
    }
    if (!proved()) {
      const Step step = greet(secret, here, hosts);
      if (step != Step::waits) {
        return step;
      }
      continue;
    }
    if (state_ == State::body) {
      return Step::message;
    }
    const auto header = decode_peer_header(in_.bytes());
    if (!header) {
      return Step::nonsense;
    }
    header_ = *header;
    in_.begin(header->body_bytes());
    state_ = State::body;
  }
}

IncomingConnection::Step IncomingConnection::greet(const std::string& secret, std::uint32_t here,
                                                   std::size_t hosts) {
  if (state_ == State::hello) {
    hello_ = in_.as<PeerHello>();
    if (hello_.magic != hello_magic || hello_.to != here || hello_.from >= hosts) {
      return Step::ended;
    }
    nonce_ = random_nonce();
    out_.put(PeerChallenge{.nonce = nonce_, .proof = proof_of('L', secret, hello_, nonce_)});
    in_.begin(sizeof(PeerProof));
    state_ = State::proof;
    // A new connection has room for 48 bytes; one that has not is no host's of ours.
    return out_.write_to(descriptor()) && out_.whole() ? Step::waits : Step::ended;
  }
  if (!comm::same_in_constant_time(in_.as<PeerProof>(), proof_of('C', secret, hello_, nonce_))) {
    return Step::ended;
  }
  state_ = State::header;
  in_.begin(peer_header_bytes);
  return Step::waits;
}

ReceivedBlock IncomingConnection::take() {
  ReceivedBlock message{.from = hello_.from, .header = header_, .body = in_.take()};
  in_.begin(peer_header_bytes);
  state_ = State::header;
  return message;
}

}  // namespace sprat::io
