#include "comm/transports/sockets/channel.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "comm/transports/sockets/stream_plan.hpp"

namespace sprat::comm::sockets {
namespace {

/// Bounds one call, however fast the peer is: its caller holds the token.
constexpr std::size_t bytes_a_call = std::size_t{1} << 20;
/// To encrypt or decrypt them takes several times as long.
constexpr std::size_t encrypted_bytes_a_call = std::size_t{1} << 18;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/// -1 and errno, with interruptions tried again.
template <class Call>
ssize_t uninterrupted(Call call) {
  ssize_t result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

}  // namespace

void Channel::close() noexcept {
  socket_.close();
  link_ = nullptr;
  stalled_ = false;
}

void Channel::encrypt(std::shared_ptr<const TlsContext> context) {
  record_.resize(TlsSession::record_bytes);
  session_ = std::make_unique<TlsSession>(
      std::move(context), connecting_ ? TlsRole::connects : TlsRole::listens, descriptor());
}

void Channel::open(Link& link) noexcept {
  link_ = &link;
  connecting_.reset();
  accepting_.reset();
  readable_ = true;
}

/// Whether the greeting may go on: it is not, until TLS stands.
bool Channel::begins_encrypted(Moved& moved) noexcept {
  const TlsState state = session_->handshake();
  if (state == TlsState::ended || state == TlsState::failed) {
    moved.error = session_->error();
  }
  moved.any |= state == TlsState::done;
  return state == TlsState::done;
}

/// As ::recv().
std::ptrdiff_t Channel::receive(std::span<std::byte> into) noexcept {
  if (!session_) {
    return uninterrupted([&] { return ::recv(descriptor(), into.data(), into.size(), 0); });
  }
  const TlsMoved moved = session_->read(into);
  switch (moved.state) {
    case TlsState::done:
      return static_cast<std::ptrdiff_t>(moved.bytes);
    case TlsState::ended:
      return 0;
    case TlsState::wants_read:
      errno = EAGAIN;
      return -1;
    case TlsState::wants_write:  // to answer what no peer of ours asks
      errno = EPROTO;
      return -1;
    case TlsState::failed:
      break;
  }
  errno = session_->error();
  return -1;
}

/// First to where the bytes of a message belong, and what is behind them to `extra`, all of it:
/// each call has the kernel acknowledge what it took, which holds the sender up for longer than it
/// takes to copy once more. Of what is encrypted a call gives one record, so there is no behind.
std::ptrdiff_t Channel::receive_behind(const Incoming& next, std::span<std::byte> extra) noexcept {
  if (session_) {
    return receive({next.place, next.bytes});
  }
  std::array<iovec, 2> parts = {iovec{next.place, next.bytes}, iovec{extra.data(), extra.size()}};
  return uninterrupted([&] { return ::readv(descriptor(), parts.data(), parts.size()); });
}

/// As ::send().
std::ptrdiff_t Channel::transmit(std::span<const std::byte> from) noexcept {
  if (!session_) {
    // MSG_NOSIGNAL: a connection that its other end has closed is an error, not the process's end.
    return uninterrupted(
        [&] { return ::send(descriptor(), from.data(), from.size(), MSG_NOSIGNAL); });
  }
  const TlsMoved moved = session_->write(from);
  if (moved.state == TlsState::done) {
    return static_cast<std::ptrdiff_t>(moved.bytes);
  }
  errno = moved.state == TlsState::wants_write ? EAGAIN : session_->error();
  return -1;
}

/// Some of a frame. A header is encrypted with the bytes behind it: a record of its own would cost
/// as much as a whole one. Called again after EAGAIN it finds the same frame, and so makes the same
/// record.
std::ptrdiff_t Channel::transmit_record(const Outgoing& next) noexcept {
  if (next.header.empty()) {
    return transmit(next.body);
  }
  const std::size_t body = std::min(next.body.size(), record_.size() - next.header.size());
  std::copy_n(next.header.data(), next.header.size(), record_.data());
  std::copy_n(next.body.data(), body, record_.data() + next.header.size());
  return transmit(std::span<const std::byte>(record_).first(next.header.size() + body));
}

/// Some of what is not encrypted, by one call: the kernel lets go of the connection behind each,
/// and hears what the peer has acknowledged meanwhile. A MiB in eight calls takes twice as long.
std::ptrdiff_t Channel::transmit(std::span<const Outgoing> frames) noexcept {
  std::array<iovec, 2 * Outbox::frames_at_once> parts;
  std::size_t count = 0;
  for (const Outgoing& frame : frames) {
    for (const std::span<const std::byte>& part : {frame.header, frame.body}) {
      parts[count++] = iovec{const_cast<std::byte*>(part.data()), part.size()};
    }
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return uninterrupted([&] { return ::sendmsg(descriptor(), &message, MSG_NOSIGNAL); });
}

Channel::Progress Channel::greet() {
  Progress progress;
  readable_ = false;
  if (session_ && !session_->stands() && !begins_encrypted(progress.moved)) {
    return progress;
  }
  const auto output = [&] { return connecting_ ? connecting_->output() : accepting_->output(); };
  const auto input = [&] { return connecting_ ? connecting_->input() : accepting_->input(); };
  for (;;) {
    while (!output().empty()) {
      const auto bytes = output();
      const ssize_t sent = transmit(bytes);
      if (sent < 0) {
        progress.moved.error = would_block(errno) ? 0 : errno;
        return progress;
      }
      progress.moved.any = true;
      connecting_ ? connecting_->wrote(static_cast<std::size_t>(sent))
                  : accepting_->wrote(static_cast<std::size_t>(sent));
    }
    const auto room = input();
    if (room.empty()) {
      return progress;
    }
    const ssize_t got = receive(room);
    if (got <= 0) {
      progress.moved.error = got == 0 ? ECONNRESET : would_block(errno) ? 0 : errno;
      return progress;
    }
    progress.moved.any = true;
    progress.greeted = connecting_ ? connecting_->got(static_cast<std::size_t>(got))
                                   : accepting_->got(static_cast<std::size_t>(got));
    if (progress.greeted == Greeted::proved) {
      name_ = accepting_->name();
      peer_ = name_.from;
    }
    if (progress.greeted != Greeted::not_yet) {
      return progress;
    }
  }
}

std::size_t Channel::budget_of_a_call() const {
  return session_ ? encrypted_bytes_a_call : bytes_a_call;
}

Moved Channel::read(std::span<std::byte> buffer) noexcept {
  Moved moved;
  if (stalled_) {
    moved = feed({});
  }
  for (std::size_t budget = budget_of_a_call(); budget > 0 && !stalled_ && moved.error == 0;) {
    const Incoming next = link_->in.incoming(stream());
    const std::size_t placed = next.place == nullptr ? 0 : next.bytes;
    const ssize_t result = placed == 0 ? receive(buffer) : receive_behind(next, buffer);
    if (result <= 0) {
      readable_ = false;
      moved.error = result == 0 ? ECONNRESET : would_block(errno) ? 0 : errno;
      return moved;
    }
    const auto got = static_cast<std::size_t>(result);
    const std::size_t direct = std::min(got, placed);
    if (direct > 0) {
      link_->in.placed(stream(), direct);
    }
    if (got > direct) {
      moved = feed(buffer.first(got - direct));
    }
    moved.any = true;
    budget -= std::min(budget, got);
    // Less than there was room for: that was all. The end of the stream tells of itself by an event
    // of its own, unless it came with these bytes. Of what is encrypted it was a record.
    if (!session_ && got < placed + buffer.size() && !hung_up_) {
      readable_ = false;
      return moved;
    }
  }
  return moved;
}

/// Gives the link what was read, behind what it had no place for before.
Moved Channel::feed(std::span<const std::byte> bytes) noexcept {
  const bool again = stalled_;
  const Inbox::Fed fed =
      link_->in.feed(stream(), again ? std::span<const std::byte>(rest_) : bytes);
  stalled_ = fed.taken == Inbox::Taken::not_yet;
  if (fed.taken == Inbox::Taken::nonsense) {
    return {.any = true, .error = EPROTO};
  }
  try {
    if (again) {
      rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(fed.bytes));
    } else {
      rest_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(fed.bytes), bytes.end());
    }
  } catch (const std::bad_alloc&) {
    return {.any = true, .error = ENOMEM};  // it is read from the kernel, and could not be kept
  }
  return {.any = fed.bytes > 0 || !stalled_, .error = 0};
}

Moved Channel::write() noexcept {
  Moved moved;
  std::array<Outgoing, Outbox::frames_at_once> room;
  for (std::size_t budget = budget_of_a_call(); budget > 0 && !blocked_;) {
    const auto frames = std::span<const Outgoing>(room).first(
        link_->out.outgoing(stream(), session_ ? std::span(room).first(1) : room, budget));
    if (frames.empty()) {
      return moved;
    }
    const ssize_t result = session_ ? transmit_record(frames.front()) : transmit(frames);
    if (result < 0) {
      blocked_ = would_block(errno);
      moved.error = blocked_ ? 0 : errno;
      if (session_ && blocked_) {
        link_->out.commit(stream());  // the record is made, and perhaps half of it has gone
      }
      return moved;
    }
    const auto sent = static_cast<std::size_t>(result);
    std::size_t given = 0;
    for (const Outgoing& frame : frames) {
      given += frame.bytes();
    }
    // The kernel has set itself to tell when there is room again.
    blocked_ = !session_ && sent < given;
    link_->out.wrote(stream(), sent);
    moved.any = true;
    budget -= std::min(budget, sent);
    if (link_->out.streams() > 1 && sent == given && sent >= least_piece) {
      return moved;  // the next piece is another stream's, which may be another wire's
    }
  }
  return moved;
}

void Channel::discard(std::span<std::byte> buffer) noexcept {
  ssize_t got = 1;
  for (std::size_t budget = bytes_a_call; got > 0 && budget > 0;) {
    got = uninterrupted([&] { return ::recv(descriptor(), buffer.data(), buffer.size(), 0); });
    budget -= std::min(budget, got > 0 ? static_cast<std::size_t>(got) : 0);
  }
}

}  // namespace sprat::comm::sockets
