// A connection as control frames travel over it: plain, or encrypted.
#pragma once

#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "comm/coordinator/control_socket.hpp"
#include "comm/encryption/tls_session.hpp"

namespace sprat::comm {

/// A stream that asio's composed operations take: one read and one write at a time may be under
/// way. It stays where it is while one is; a handler keeps it.
class ControlLine {
 public:
  using executor_type = StreamSocket::executor_type;
  using Done = std::function<void(const boost::system::error_code&, std::size_t)>;

  /// A plain one.
  ControlLine(StreamSocket socket) : socket_(std::move(socket)) {}

  /// From the handshake on, which is the first that happens, all goes through TLS.
  void encrypt(std::shared_ptr<const TlsContext> context, TlsRole role) {
    session_ = std::make_unique<TlsSession>(std::move(context), role, socket_.native_handle());
  }
  void async_handshake(std::function<void(const boost::system::error_code&)> done);
  /// Null: it is plain.
  const TlsSession* session() const { return session_.get(); }

  StreamSocket& socket() { return socket_; }
  const StreamSocket& socket() const { return socket_; }
  /// For use with `io`; nothing is under way.
  ControlLine moved_to(boost::asio::io_context& io, int family);

  executor_type get_executor() { return socket_.get_executor(); }
  template <class Buffers, class Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (session_) {
      read_encrypted(first_of<boost::asio::mutable_buffer>(buffers),
                     std::forward<Handler>(handler));
    } else {
      socket_.async_read_some(buffers, std::forward<Handler>(handler));
    }
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (session_) {
      write_encrypted(first_of<boost::asio::const_buffer>(buffers), std::forward<Handler>(handler));
    } else {
      socket_.async_write_some(buffers, std::forward<Handler>(handler));
    }
  }

 private:
  ControlLine(StreamSocket socket, std::unique_ptr<TlsSession> session)
      : socket_(std::move(socket)), session_(std::move(session)) {}
  /// The first buffer that has bytes.
  template <class Buffer, class Buffers>
  static Buffer first_of(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at) {
      if (const Buffer buffer(*at); buffer.size() > 0) {
        return buffer;
      }
    }
    return {};
  }
  void read_encrypted(boost::asio::mutable_buffer into, Done done);
  void write_encrypted(boost::asio::const_buffer from, Done done);
  bool is_open(const Done& done);
  void go_on(const TlsMoved& moved, std::function<void()> again, Done done);

  StreamSocket socket_;
  std::unique_ptr<TlsSession> session_;
};

}  // namespace sprat::comm
