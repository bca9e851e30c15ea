// One end of an encrypted connection: TLS 1.3 by OpenSSL, both ends known to each other by a key
// that only they have (an external PSK with a Diffie-Hellman exchange). Never waits.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/encryption/job_key.hpp"

namespace sprat::comm {

/// How sessions of one purpose encrypt.
struct TlsOptions {
  TlsKey key{};
  /// Bytes that one look at the socket may take: more than a record costs memory and saves calls.
  /// 0: no more than the record that is read, and no memory while nothing is.
  std::size_t read_ahead = 0;
  /// After so many records a session changes the key that it sends with. RFC 8446, 5.5, allows
  /// 2^24.5 full records of AES-GCM.
  std::uint64_t records_a_key = std::uint64_t{1} << 23;
};

/// What they share. Any thread.
class TlsContext {
 public:
  /// Shared: sessions keep it. Throws Error{unavailable} if libssl cannot do it.
  static std::shared_ptr<const TlsContext> make(const TlsOptions& options);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  const TlsOptions& options() const { return options_; }
  SSL_CTX* ssl() const { return ssl_.get(); }
  BIO_METHOD* socket_calls() const { return socket_calls_.get(); }

 private:
  struct FreeTls {
    void operator()(SSL_CTX* one) const { SSL_CTX_free(one); }
    void operator()(BIO_METHOD* one) const { BIO_meth_free(one); }
  };
  explicit TlsContext(const TlsOptions& options);

  const TlsOptions options_;
  std::unique_ptr<BIO_METHOD, FreeTls> socket_calls_;
  std::unique_ptr<SSL_CTX, FreeTls> ssl_;
};

enum class TlsRole : std::uint8_t { connects, listens };
enum class TlsState : std::uint8_t {
  done,
  wants_read,   ///< Call again once the socket can be read.
  wants_write,  ///< Call again, with the same bytes or more, once it can be written.
  ended,        ///< The peer has closed the connection.
  failed        ///< It is over: error() and why() tell more.
};
struct TlsMoved {
  std::size_t bytes = 0;  ///< 1 or more if done.
  TlsState state = TlsState::done;
};

/// One thread at a time. The socket, which does not block, outlives it and belongs to its owner.
class TlsSession {
 public:
  /// Throws Error{unavailable} if there is no memory for it.
  TlsSession(std::shared_ptr<const TlsContext> context, TlsRole role, int socket);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Until done, which means that the peer has the key.
  TlsState handshake() noexcept;
  bool stands() const { return stands_; }
  /// Once it stands: some of what the peer has sent.
  TlsMoved read(std::span<std::byte> into) noexcept;
  /// Sends some of the bytes, a record or two. They may lie elsewhere when it is called again, if
  /// they are the same. Until then they count as under way.
  TlsMoved write(std::span<const std::byte> from) noexcept;

  /// The peer has sent something, and it was no TLS.
  bool peer_is_plain() const;
  /// errno-like; ECONNRESET if the peer has ended it.
  int error() const { return error_; }
  /// For people.
  const std::string& why() const { return why_; }

  static constexpr std::size_t record_bytes = SSL3_RT_MAX_PLAIN_LENGTH;

 private:
  friend struct TlsSocketCalls;
  struct FreeTls {
    void operator()(SSL* one) const { SSL_free(one); }
  };
  enum class Way : std::uint8_t { in, out };
  TlsState& over(Way way) { return way == Way::in ? in_over_ : out_over_; }
  TlsState state_after(int result, Way way) noexcept;

  const std::shared_ptr<const TlsContext> context_;
  const int socket_;
  std::unique_ptr<SSL, FreeTls> ssl_;
  bool stands_ = false;
  bool at_end_ = false;     ///< The peer sends no more.
  int first_byte_ = -1;     ///< Of all that the peer has sent.
  int socket_error_ = 0;    ///< Of the last call to the kernel that failed for good.
  std::uint64_t sent_ = 0;  ///< Records with the present key.
  /// Ended or failed, once it is. Each way for itself: what came before a peer went is read even if
  /// it was writing that told of the end.
  TlsState in_over_ = TlsState::done, out_over_ = TlsState::done;
  int error_ = 0;
  std::string why_;
};

}  // namespace sprat::comm
