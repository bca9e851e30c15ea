// A connection: first the handshake, then bytes between its socket and a link, as many as the
// kernel takes or gives now.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/encryption/tls_session.hpp"
#include "comm/transports/sockets/handshake.hpp"
#include "comm/transports/sockets/link.hpp"
#include "comm/transports/sockets/tcp.hpp"

namespace sprat::comm::sockets {

/// What came of a call.
struct Moved {
  bool any = false;
  int error = 0;  ///< Not 0: the connection is over, and why. ECONNRESET: the peer has closed it.
};

class Channel {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// This end connects.
  Channel(Descriptor socket, const StreamName& name, std::string key)
      : name_(name),
        peer_(name.to),
        socket_(std::move(socket)),
        connecting_(std::in_place, name, std::move(key)) {}
  /// This end was connected to.
  Channel(Descriptor socket, Accepting::Keys keys, Time since)
      : socket_(std::move(socket)), accepting_(std::in_place, std::move(keys)), since_(since) {}

  /// Before the first greet(): all goes through TLS, the greeting too. Throws Error{unavailable}.
  void encrypt(std::shared_ptr<const TlsContext> context);
  /// Why nothing has come of encrypting; null if nothing has failed.
  const char* why_not_encrypted() const {
    return session_ && !session_->stands() && session_->error() == EPROTO ? session_->why().c_str()
                                                                          : nullptr;
  }

  int descriptor() const { return socket_.number(); }
  /// What it is, once a peer has proved it.
  const StreamName& name() const { return name_; }
  /// The rank at the other end; -1: a stranger.
  int peer() const { return peer_; }
  std::size_t stream() const { return name_.stream; }
  /// Nobody has proved to be a peer yet.
  bool strange() const { return accepting_.has_value() && peer_ < 0; }
  Time since() const { return since_; }
  bool over() const { return socket_.number() < 0; }
  void close() noexcept;

  // --- the handshake ----------------------------------------------------------------------------
  struct Progress {
    Greeted greeted = Greeted::not_yet;
    Moved moved;
  };
  Progress greet();
  /// Once proved.
  void answer(bool stands) { accepting_->answer(stands); }
  /// The answer, or anything before, is still to be written.
  bool greeting_waits() { return accepting_ && !accepting_->output().empty(); }
  /// The stream stands: its bytes are the link's from now on.
  void open(Link& link) noexcept;
  bool opened() const { return link_ != nullptr; }

  // --- an open stream ---------------------------------------------------------------------------
  /// `buffer` is for what does not go straight to its place; nothing stays in it.
  Moved read(std::span<std::byte> buffer) noexcept;
  Moved write() noexcept;
  /// Reads and drops, so that closing says that all was read.
  void discard(std::span<std::byte> buffer) noexcept;

  // --- what the kernel said ---------------------------------------------------------------------
  void note_readable(bool hung_up) {
    readable_ = true;
    hung_up_ |= hung_up;
  }
  void note_writable() { blocked_ = false; }
  /// Bytes may be there to be read.
  bool readable() const { return readable_; }
  /// The kernel takes no more, and will tell when it does.
  bool blocked() const { return blocked_; }
  /// What was read has no place yet.
  bool stalled() const { return stalled_; }
  bool queued = false;  ///< For its owner.

 private:
  std::size_t budget_of_a_call() const;
  bool begins_encrypted(Moved& moved) noexcept;
  std::ptrdiff_t receive(std::span<std::byte> into) noexcept;
  std::ptrdiff_t receive_behind(const Incoming& next, std::span<std::byte> extra) noexcept;
  std::ptrdiff_t transmit(std::span<const std::byte> from) noexcept;
  std::ptrdiff_t transmit_record(const Outgoing& next) noexcept;
  std::ptrdiff_t transmit(std::span<const Outgoing> frames) noexcept;
  Moved feed(std::span<const std::byte> bytes) noexcept;

  StreamName name_;
  int peer_ = -1;
  Descriptor socket_;
  std::unique_ptr<TlsSession> session_;  ///< Null: plain.
  std::vector<std::byte> record_;        ///< A header and what fits behind it, to be encrypted.
  std::optional<Connecting> connecting_;
  std::optional<Accepting> accepting_;
  Link* link_ = nullptr;
  bool readable_ = true, hung_up_ = false, blocked_ = false, stalled_ = false;
  std::vector<std::byte> rest_;  ///< What was read when it stalled.
  Time since_{};                 ///< It was accepted.
};

}  // namespace sprat::comm::sockets
