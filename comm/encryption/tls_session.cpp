// OpenSSL's own calls to the kernel would raise SIGPIPE when a peer has gone, which a library must
// not; so sockets are called here. Kernel TLS comes with those calls only, and most kernels cannot
// change its keys, which a connection of more than 400 GB has to. So records are made here.
#include "comm/encryption/tls_session.hpp"

#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

/// What a peer that connects calls the key. It tells nothing: which job it is shows by the key.
constexpr std::string_view key_name = "sprat";
/// TLS_AES_128_GCM_SHA256, the one that every CPU of a cluster has instructions for.
constexpr std::array<unsigned char, 2> suite_number = {0x13, 0x01};
constexpr const char* suite_name = "TLS_AES_128_GCM_SHA256";
constexpr const char* groups = "X25519:P-256";

/// Of this thread's last failure in OpenSSL, which is forgotten by that.
std::string openssl_reason() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason is given" : reason;
}

/// The external PSK as OpenSSL wants it: a session to be resumed. Null if memory has run out.
SSL_SESSION* session_of(SSL* ssl, const TlsKey& key) {
  const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, suite_number.data());
  SSL_SESSION* session = SSL_SESSION_new();
  if (suite != nullptr && session != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, suite) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

const TlsContext& context_of(SSL* ssl) {
  return *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

/// Of who listens.
int find_key(SSL* ssl, const unsigned char* name, std::size_t bytes, SSL_SESSION** found) {
  *found = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(name), bytes) != key_name) {
    return 1;  // there is no certificate either, so the handshake fails
  }
  *found = session_of(ssl, context_of(ssl).options().key);
  return *found != nullptr ? 1 : 0;
}

/// Of who connects.
int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** name, std::size_t* bytes,
              SSL_SESSION** offered) {
  *name = reinterpret_cast<const unsigned char*>(key_name.data());
  *bytes = key_name.size();
  *offered = session_of(ssl, context_of(ssl).options().key);
  return *offered != nullptr ? 1 : 0;
}

int no_answer(BIO*) { return 1; }

long control(BIO*, int what, long, void*) {
  // Records are written as they are made, so there is never anything to be flushed.
  return what == BIO_CTRL_FLUSH ? 1 : 0;
}

}  // namespace

/// What OpenSSL calls to reach the kernel.
struct TlsSocketCalls {
  static int read(BIO* bio, char* into, int bytes) {
    auto& session = *static_cast<TlsSession*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    ssize_t got = -1;
    do {
      got = ::recv(session.socket_, into, static_cast<std::size_t>(bytes), 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0 && session.first_byte_ < 0) {
      session.first_byte_ = static_cast<unsigned char>(*into);
    }
    session.at_end_ = got == 0;
    if (got < 0) {
      note_error(session, bio, errno, [](BIO* one) { BIO_set_retry_read(one); });
    }
    return static_cast<int>(got);
  }
  static int write(BIO* bio, const char* from, int bytes) {
    auto& session = *static_cast<TlsSession*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    ssize_t sent = -1;
    do {
      sent = ::send(session.socket_, from, static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
      note_error(session, bio, errno, [](BIO* one) { BIO_set_retry_write(one); });
    }
    return static_cast<int>(sent);
  }

 private:
  template <class Retry>
  static void note_error(TlsSession& session, BIO* bio, int error, Retry retry) {
    if (error == EAGAIN || error == EWOULDBLOCK) {
      retry(bio);
    } else {
      session.socket_error_ = error;
    }
  }
};

TlsContext::TlsContext(const TlsOptions& options)
    : options_(options), socket_calls_(BIO_meth_new(BIO_get_new_index(), "sprat socket")) {
  ssl_.reset(SSL_CTX_new(TLS_method()));
  need(ssl_ != nullptr && socket_calls_ != nullptr, "libssl does not start: ", openssl_reason());
  BIO_meth_set_read(socket_calls_.get(), &TlsSocketCalls::read);
  BIO_meth_set_write(socket_calls_.get(), &TlsSocketCalls::write);
  BIO_meth_set_ctrl(socket_calls_.get(), &control);
  BIO_meth_set_create(socket_calls_.get(), &no_answer);
  SSL_CTX* ssl = ssl_.get();
  SSL_CTX_set_app_data(ssl, this);
  // Set here one by one, so that the system's openssl.cnf allows neither less nor more.
  const bool accepted = SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) == 1 &&
                        SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) == 1 &&
                        SSL_CTX_set_ciphersuites(ssl, suite_name) == 1 &&
                        SSL_CTX_set1_groups_list(ssl, groups) == 1 &&
                        SSL_CTX_set_num_tickets(ssl, 0) == 1;
  need(accepted, "libssl does not do TLS 1.3 with ", suite_name, ": ", openssl_reason());
  // A key without a fresh exchange would open all that was ever recorded to whoever finds the token
  // later.
  SSL_CTX_clear_options(ssl, SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
  // A record at a time, so that a long write gives the caller its turn; and from memory that may
  // have moved, since a message that is given up is copied in the midst of it.
  SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_psk_find_session_callback(ssl, &find_key);
  SSL_CTX_set_psk_use_session_callback(ssl, &offer_key);
  if (options.read_ahead > 0) {
    SSL_CTX_set_read_ahead(ssl, 1);
    SSL_CTX_set_default_read_buffer_len(ssl, options.read_ahead);
  } else {
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
  }
}

std::shared_ptr<const TlsContext> TlsContext::make(const TlsOptions& options) {
  return std::shared_ptr<const TlsContext>(new TlsContext(options));
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, TlsRole role, int socket)
    : context_(std::move(context)), socket_(socket), ssl_(SSL_new(context_->ssl())) {
  BIO* bio = ssl_ == nullptr ? nullptr : BIO_new(context_->socket_calls());
  need(bio != nullptr, "libssl makes no session: ", openssl_reason());
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // it owns it now
  if (role == TlsRole::listens) {
    SSL_set_accept_state(ssl_.get());
    return;
  }
  SSL_set_connect_state(ssl_.get());
  // No certificate is trusted, so who answers with one instead of the key is turned away.
  SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
}

/// What a call of OpenSSL's that gave `result`, which was no success, has come to.
TlsState TlsSession::state_after(int result, Way way) noexcept {
  const int what = SSL_get_error(ssl_.get(), result);
  if (what == SSL_ERROR_WANT_READ) {
    return TlsState::wants_read;
  }
  if (what == SSL_ERROR_WANT_WRITE) {
    return TlsState::wants_write;
  }
  const bool ended = (way == Way::in && at_end_) || what == SSL_ERROR_ZERO_RETURN ||
                     socket_error_ == ECONNRESET || socket_error_ == EPIPE;
  over(way) = ended ? TlsState::ended : TlsState::failed;
  error_ = ended ? ECONNRESET : socket_error_ != 0 ? socket_error_ : EPROTO;
  try {
    why_ = ended                ? "the connection ended"
           : socket_error_ != 0 ? std::strerror(socket_error_)
                                : openssl_reason();
  } catch (const std::exception&) {
    why_.clear();  // no memory for a reason
  }
  ERR_clear_error();
  return over(way);
}

TlsState TlsSession::handshake() noexcept {
  if (in_over_ != TlsState::done) {
    return in_over_;
  }
  ERR_clear_error();  // of others' on this thread, or SSL_get_error() would take them for ours
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) {
    return state_after(result, Way::in);
  }
  // The key, not a certificate: what comes now is from who has it.
  if (SSL_session_reused(ssl_.get()) != 1 || SSL_version(ssl_.get()) != TLS1_3_VERSION) {
    in_over_ = TlsState::failed;
    error_ = EPROTO;
    why_ = "it has no key";
    return in_over_;
  }
  stands_ = true;
  return TlsState::done;
}

TlsMoved TlsSession::read(std::span<std::byte> into) noexcept {
  if (in_over_ != TlsState::done || !stands_) {
    return {0, in_over_ != TlsState::done ? in_over_ : TlsState::failed};
  }
  ERR_clear_error();
  socket_error_ = 0;
  const int result = SSL_read(ssl_.get(), into.data(),
                              static_cast<int>(std::min<std::size_t>(into.size(), INT_MAX)));
  return result > 0 ? TlsMoved{static_cast<std::size_t>(result), TlsState::done}
                    : TlsMoved{0, state_after(result, Way::in)};
}

// A record at a time. To hold back records for those behind them (MSG_MORE) made streams between
// two hosts slower by a third, and their system time half as long again.
TlsMoved TlsSession::write(std::span<const std::byte> from) noexcept {
  if (out_over_ != TlsState::done || !stands_) {
    return {0, out_over_ != TlsState::done ? out_over_ : TlsState::failed};
  }
  ERR_clear_error();
  socket_error_ = 0;
  const int result = SSL_write(ssl_.get(), from.data(),
                               static_cast<int>(std::min<std::size_t>(from.size(), INT_MAX)));
  if (result <= 0) {
    return {0, state_after(result, Way::out)};
  }
  // One that has waited comes with the next one, and both count.
  sent_ += (static_cast<std::size_t>(result) + record_bytes - 1) / record_bytes;
  if (sent_ >= context_->options().records_a_key) {
    // The next call sends word of the new key before its own bytes. The peer answers nothing, for
    // it counts its own records.
    sent_ = 0;
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  return {static_cast<std::size_t>(result), TlsState::done};
}

bool TlsSession::peer_is_plain() const {
  // An alert or a handshake, the only records that begin a conversation.
  return first_byte_ >= 0 && first_byte_ != SSL3_RT_ALERT && first_byte_ != SSL3_RT_HANDSHAKE;
}

}  // namespace sprat::comm
