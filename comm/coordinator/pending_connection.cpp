#include "comm/coordinator/pending_connection.hpp"

#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/coordinator/control_server.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// From the connection to its Hello. It may be long: a stranger that says nothing occupies one of
/// the bounded places and a few bytes.
constexpr std::chrono::seconds patience_with_strangers{10};

Objection objection_to(Trust trust, const StreamSocket& socket) {
  try {
    return object_to(trust, socket);
  } catch (const boost::system::system_error& error) {
    return {text("the hub cannot tell whose process it is: ", error.code().message()), false};
  }
}

/// The first record of TLS, of any version since 1.0.
bool begins_tls(const Magic& bytes) {
  return bytes[0] == std::byte{SSL3_RT_HANDSHAKE} && bytes[1] == std::byte{SSL3_VERSION_MAJOR};
}

}  // namespace

PendingConnection::PendingConnection(std::weak_ptr<ControlServer> server, StreamSocket socket,
                                     std::string from)
    : server_(std::move(server)),
      from_(std::move(from)),
      line_(std::move(socket)),
      timer_(line_.get_executor()) {}

void PendingConnection::start() {
  timer_.expires_after(patience_with_strangers);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->give_up();
    }
  });
  const auto server = server_.lock();
  if (!server || !server->encryption()) {
    return read_greeting();
  }
  await_first_byte();
}

void PendingConnection::await_first_byte() {
  line_.socket().async_wait(asio::socket_base::wait_read,
                            [self = shared_from_this()](const error_code& error) {
                              error ? self->give_up() : self->begin_encryption();
                            });
}

/// A rank that does not encrypt is told so, and nothing else: hence its first byte is looked at
/// before OpenSSL takes it. The wait may end with nothing to read: asio gives the state of a socket
/// that was closed to the next one, and an event that was the closed one's may still be on its way.
void PendingConnection::begin_encryption() {
  const auto server = server_.lock();
  std::byte first{};
  const ssize_t seen = ::recv(line_.socket().native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (server && seen < 0 && (errno == EAGAIN || errno == EINTR)) {
    return await_first_byte();
  }
  if (!server || seen != 1) {
    return give_up();
  }
  if (first == control_magic.front()) {
    return read_greeting();
  }
  line_.encrypt(server->encryption(), TlsRole::listens);
  line_.async_handshake([self = shared_from_this()](const error_code& error) {
    if (!error) {
      return self->read_greeting();
    }
    const auto host = self->server_.lock();
    const TlsSession& session = *self->line_.session();
    // Of those who speak TLS at all, and did not just go.
    if (host && !session.peer_is_plain() && session.error() == EPROTO) {
      host->turned_away(self,
                        text("has another token or job, or is no rank (", session.why(), ")"));
    }
    self->give_up();
  });
}

void PendingConnection::read_greeting() {
  const std::array<asio::mutable_buffer, 2> buffers = {asio::buffer(greeting_.magic),
                                                       asio::buffer(greeting_.nonce)};
  asio::async_read(
      line_, buffers, [self = shared_from_this()](const error_code& error, std::size_t) {
        const auto server = self->server_.lock();
        if (error || !server) {
          return self->give_up();
        }
        // Nothing is sent to whoever does not speak our protocol.
        if (self->greeting_.magic != control_magic) {
          if (begins_tls(self->greeting_.magic) && !server->encryption()) {
            server->turned_away(self,
                                "encrypts, as SPRAT_ENCRYPT=1 asks there and not here; set it on "
                                "every rank or on none");
          }
          return self->give_up();
        }
        server->encryption() && self->line_.session() == nullptr ? self->refuse_plain()
                                                                 : self->greet();
      });
}

void PendingConnection::refuse_plain() {
  server_.lock()->turned_away(
      shared_from_this(), "does not encrypt, as SPRAT_ENCRYPT=1 asks here; set it on every rank");
  answer_.magic = encrypted_only_magic;
  const std::array<asio::const_buffer, 3> buffers = {
      asio::buffer(answer_.magic), asio::buffer(answer_.nonce), asio::buffer(answer_.proof)};
  asio::async_write(line_, buffers, [self = shared_from_this()](const error_code&, std::size_t) {
    self->give_up();
  });
}

void PendingConnection::greet() {
  const auto server = server_.lock();
  if (!server) {
    return give_up();
  }
  answer_.nonce = random_nonce();
  answer_.proof =
      prove(server->admission().token, Side::coordinator, answer_.nonce, greeting_.nonce);
  const std::array<asio::const_buffer, 3> buffers = {
      asio::buffer(answer_.magic), asio::buffer(answer_.nonce), asio::buffer(answer_.proof)};
  asio::async_write(line_, buffers,
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (error) {
                        return self->give_up();
                      }
                      self->check_proof();
                    });
}

void PendingConnection::check_proof() {
  asio::async_read(
      line_, asio::buffer(proof_),
      [self = shared_from_this()](const error_code& error, std::size_t) {
        const auto server = self->server_.lock();
        if (!server) {
          return self->give_up();
        }
        const Proof wanted = prove(server->admission().token, Side::rank, self->answer_.nonce,
                                   self->greeting_.nonce);
        // Compared in constant time: how long it takes must not tell how much of a guess was right.
        if (!error && equal(self->proof_, wanted)) {
          self->objection_ = objection_to(server->admission().trust, self->line_.socket());
          return self->read_hello();
        }
        // A rank with another token closes the connection here, because our proof showed it the
        // wrong one.
        server->turned_away(
            self,
            "left without a proof: it has another token, job or user, lost patience, or died");
        self->give_up();
      });
}

void PendingConnection::read_hello() {
  ControlConnection::Events events;
  // A plain pointer: the connection is this object's own, and a shared one would keep both alive
  // for ever.
  events.received = [self = this](const Frame& frame) {
    const auto server = self->server_.lock();
    const auto* hello = std::get_if<Hello>(&frame);
    if (server && hello != nullptr) {
      return server->enters(self->shared_from_this(), *hello);
    }
    self->give_up();
  };
  events.ended = [self = this](std::string_view how) {
    const auto server = self->server_.lock();
    if (server && !self->refused_ && self->objection_.text.empty()) {
      server->went_unnamed(*self, how);
    }
    self->give_up();
  };
  connection_ = ControlConnection::start(std::move(line_), max_hello_bytes, std::move(events));
}

void PendingConnection::refuse(const Frame& frame) {
  if (!connection_) {
    return give_up();
  }
  refused_ = true;
  connection_->send(std::make_shared<const Blob>(encode(frame)));
  connection_->finish();
}

std::shared_ptr<ControlConnection> PendingConnection::release() {
  timer_.cancel();
  return std::exchange(connection_, nullptr);
}

void PendingConnection::close() {
  timer_.cancel();
  error_code ignored;
  line_.socket().close(ignored);
  if (connection_) {
    connection_->close();
  }
}

void PendingConnection::give_up() {
  const auto self = shared_from_this();
  close();
  if (const auto server = server_.lock()) {
    server->dismiss(self);
  }
}

}  // namespace sprat::comm
