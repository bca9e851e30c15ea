// Encrypted, a line asks asio only when its socket can be read or written: OpenSSL calls the kernel
// itself, and keeps what it has begun to write. A handler is never called from within the call that
// starts its operation, which asio's composed operations rely on.
#include "comm/coordinator/control_line.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// What asio says of a plain connection that has come to the same.
error_code error_of(const TlsSession& session, TlsState state) {
  if (state == TlsState::done) {
    return {};
  }
  return state == TlsState::ended ? error_code(asio::error::eof)
                                  : error_code(session.error(), boost::system::system_category());
}

}  // namespace

/// Ends an operation, or waits for the socket and tries `again`, which the handler of that wait
/// owns.
void ControlLine::go_on(const TlsMoved& moved, std::function<void()> again, Done done) {
  if (moved.state == TlsState::wants_read || moved.state == TlsState::wants_write) {
    const auto what = moved.state == TlsState::wants_read ? asio::socket_base::wait_read
                                                          : asio::socket_base::wait_write;
    socket_.async_wait(what, [again = std::move(again), done = std::move(done)](
                                 const error_code& error) { error ? done(error, 0) : again(); });
    return;
  }
  asio::post(get_executor(), [done = std::move(done), error = error_of(*session_, moved.state),
                              bytes = moved.bytes] { done(error, bytes); });
}

void ControlLine::async_handshake(std::function<void(const error_code&)> done) {
  const Done ended = [done](const error_code& error, std::size_t) { done(error); };
  if (is_open(ended)) {
    go_on(
        {0, session_->handshake()}, [this, done] { async_handshake(done); }, ended);
  }
}

/// Else ends the operation. OpenSSL knows the socket by its number, which is another's once it was
/// closed, as it may be while a handler waits to be called.
bool ControlLine::is_open(const Done& done) {
  if (socket_.is_open()) {
    return true;
  }
  asio::post(get_executor(), [done] { done(asio::error::operation_aborted, 0); });
  return false;
}

// No bytes are no record: OpenSSL takes an empty read or write for a failure.
void ControlLine::read_encrypted(asio::mutable_buffer into, Done done) {
  if (!is_open(done)) {
    return;
  }
  const TlsMoved moved = into.size() == 0
                             ? TlsMoved{}
                             : session_->read({static_cast<std::byte*>(into.data()), into.size()});
  go_on(
      moved, [this, into, done] { read_encrypted(into, done); }, done);
}

void ControlLine::write_encrypted(asio::const_buffer from, Done done) {
  if (!is_open(done)) {
    return;
  }
  const TlsMoved moved =
      from.size() == 0 ? TlsMoved{}
                       : session_->write({static_cast<const std::byte*>(from.data()), from.size()});
  go_on(
      moved, [this, from, done] { write_encrypted(from, done); }, done);
}

ControlLine ControlLine::moved_to(asio::io_context& io, int family) {
  return {adopt_socket(io, family, socket_.release()), std::move(session_)};
}

}  // namespace sprat::comm
