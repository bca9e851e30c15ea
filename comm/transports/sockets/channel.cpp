#include "comm/transports/sockets/channel.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

namespace sprat::comm::sockets {
namespace {

/// Bounds one call, however fast the peer is: its caller holds the token.
constexpr std::size_t bytes_a_call = std::size_t{1} << 20;
/// Behind the bytes of a long message the next header is read with them, and little more: what
/// follows is better read straight to its place.
constexpr std::size_t tail_bytes = 4096;

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

void Channel::open(Link& link) noexcept {
  link_ = &link;
  connecting_.reset();
  accepting_.reset();
  readable_ = true;
}

Channel::Progress Channel::greet() {
  Progress progress;
  readable_ = false;
  const auto output = [&] { return connecting_ ? connecting_->output() : accepting_->output(); };
  const auto input = [&] { return connecting_ ? connecting_->input() : accepting_->input(); };
  for (;;) {
    while (!output().empty()) {
      const auto bytes = output();
      const ssize_t sent = uninterrupted(
          [&] { return ::send(descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL); });
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
    const ssize_t got =
        uninterrupted([&] { return ::recv(descriptor(), room.data(), room.size(), 0); });
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

Moved Channel::read(std::span<std::byte> buffer) noexcept {
  Moved moved;
  if (stalled_) {
    moved = feed({});
  }
  for (std::size_t budget = bytes_a_call; budget > 0 && !stalled_ && moved.error == 0;) {
    const Incoming next = link_->in.incoming(stream());
    const std::size_t placed = next.place == nullptr ? 0 : next.bytes;
    const std::size_t extra =
        placed > tail_bytes ? std::min(tail_bytes, buffer.size()) : buffer.size();
    std::array<iovec, 2> parts = {iovec{next.place, placed}, iovec{buffer.data(), extra}};
    const ssize_t result = uninterrupted([&] {
      return placed == 0 ? ::recv(descriptor(), buffer.data(), extra, 0)
                         : ::readv(descriptor(), parts.data(), parts.size());
    });
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
    // of its own, unless it came with these bytes.
    if (got < placed + extra && !hung_up_) {
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
  for (std::size_t budget = bytes_a_call; budget > 0 && !blocked_;) {
    const Outgoing next = link_->out.outgoing(stream());
    if (next.bytes() == 0) {
      return moved;
    }
    std::array<iovec, 2> parts = {
        iovec{const_cast<std::byte*>(next.header.data()), next.header.size()},
        iovec{const_cast<std::byte*>(next.body.data()), next.body.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    // MSG_NOSIGNAL: a connection that its other end has closed is an error, not the process's end.
    const ssize_t result =
        uninterrupted([&] { return ::sendmsg(descriptor(), &message, MSG_NOSIGNAL); });
    if (result < 0) {
      blocked_ = would_block(errno);
      moved.error = blocked_ ? 0 : errno;
      return moved;
    }
    const auto sent = static_cast<std::size_t>(result);
    // The kernel has set itself to tell when there is room again.
    blocked_ = sent < next.bytes();
    link_->out.wrote(stream(), sent);
    moved.any = true;
    budget -= std::min(budget, sent);
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
