#include "comm/coordinator/pending_connection.hpp"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
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

}  // namespace

PendingConnection::PendingConnection(std::weak_ptr<ControlServer> server, StreamSocket socket,
                                     std::string from)
    : server_(std::move(server)),
      from_(std::move(from)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()) {}

void PendingConnection::start() {
  timer_.expires_after(patience_with_strangers);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) {
      self->give_up();
    }
  });
  const std::array<asio::mutable_buffer, 2> buffers = {asio::buffer(greeting_.magic),
                                                       asio::buffer(greeting_.nonce)};
  asio::async_read(socket_, buffers,
                   [self = shared_from_this()](const error_code& error, std::size_t) {
                     // Nothing is sent to whoever does not speak our protocol.
                     if (error || self->greeting_.magic != control_magic) {
                       return self->give_up();
                     }
                     self->greet();
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
  asio::async_write(socket_, buffers,
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (error) {
                        return self->give_up();
                      }
                      self->check_proof();
                    });
}

void PendingConnection::check_proof() {
  asio::async_read(
      socket_, asio::buffer(proof_),
      [self = shared_from_this()](const error_code& error, std::size_t) {
        const auto server = self->server_.lock();
        if (!server) {
          return self->give_up();
        }
        const Proof wanted = prove(server->admission().token, Side::rank, self->answer_.nonce,
                                   self->greeting_.nonce);
        // Compared in constant time: how long it takes must not tell how much of a guess was right.
        if (!error && equal(self->proof_, wanted)) {
          self->objection_ = objection_to(server->admission().trust, self->socket_);
          return self->read_hello();
        }
        // A rank with another token closes the connection here, because our proof showed it the
        // wrong one.
        server->turned_away(
            self, "left without a proof: it has another token, job or user, or lost patience");
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
  events.ended = [self = this](std::string_view) { self->give_up(); };
  connection_ = ControlConnection::start(std::move(socket_), max_hello_bytes, std::move(events));
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
  socket_.close(ignored);
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
