// Whoever waits, drives: there is no thread and no epoll. A connection is looked at when one of its
// requests is, by reading from it; the kernel is asked first only where there are several streams
// to read from in vain.
#include "comm/endpoint/connection.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "comm/transports/sockets/farewell.hpp"
#include "comm/transports/sockets/stream_plan.hpp"

namespace sprat::comm::endpoint {
namespace {

constexpr std::size_t buffer_bytes = 64 * 1024;
/// Kept of what no receive has asked for yet; 16 times what a peer of ours sends unasked.
constexpr std::size_t most_unexpected = std::size_t{64} << 20;
/// More than the kernel holds of one stream: a peer that goes on sending does not keep us here.
constexpr int most_last_reads = 64;

}  // namespace

Connection::Connection(Channels channels)
    : unexpected_{most_unexpected},
      link_(channels.size(), unexpected_),
      channels_(std::move(channels)),
      buffer_(buffer_bytes) {
  for (const auto& channel : channels_) {
    channel->open(link_);
  }
}

Connection::~Connection() {
  // A child of fork() shares the sockets, and must not take from them what its parent shall read.
  if (mark_.here() && error_ == 0 && idle()) {
    sockets::see_off(channels_, buffer_.span());
  }
}

/// Nothing of ours is under way in either direction.
bool Connection::idle() noexcept {
  for (std::size_t stream = 0; stream < channels_.size(); ++stream) {
    if (link_.out.outgoing(stream).bytes() > 0) {
      return false;
    }
  }
  return !link_.awaits_peer() && !link_.out.has_pieces();
}

void Connection::send(MessageRequest& request, std::uint64_t tag, std::span<const std::byte> data) {
  link_.send(request, tag, data);  // which ends it at once if the link is broken
  if (error_ == 0 && link_.out.would_announce()) {
    look(true);  // the peer may have said that it expects it
  }
  write();
}

void Connection::recv(MessageRequest& request, std::uint64_t tag, std::span<std::byte> data) {
  link_.in.recv(request, tag, data);
  write();  // it may have asked for what was announced
}

bool Connection::progress() noexcept {
  if (error_ != 0) {
    return false;
  }
  bool moved = look(link_.awaits_peer());
  moved = write() || moved;  // what was read may have made something to write
  return moved;
}

/// Reads where there may be something. `awaited`: bytes of the peer's are wanted; else they may lie
/// in the kernel, which holds back a peer that sends what nobody asks for.
bool Connection::look(bool awaited) noexcept {
  std::array<pollfd, sockets::most_streams> asked{};
  const std::size_t count = channels_.size();
  const bool several = count > 1 && awaited;
  for (std::size_t at = 0; at < count && several; ++at) {
    asked[at] = {.fd = channels_[at]->descriptor(), .events = POLLIN, .revents = 0};
  }
  if (several && ::poll(asked.data(), count, 0) < 0) {
    return false;  // interrupted: whoever waits comes again
  }
  bool moved = false;
  for (std::size_t at = 0; at < count; ++at) {
    sockets::Channel& channel = *channels_[at];
    if ((awaited && (!several || asked[at].revents != 0)) || channel.stalled()) {
      moved = read(channel) || moved;
    }
    if (error_ != 0) {
      return true;
    }
  }
  return moved;
}

bool Connection::read(sockets::Channel& channel) noexcept {
  channel.note_readable(false);
  const sockets::Moved moved = channel.read(buffer_.span());
  if (moved.error != 0) {
    end(moved.error);
    return true;
  }
  return moved.any;
}

/// Writes what the kernel takes now. Nobody tells when it takes more, so a stream that was full is
/// simply tried again.
bool Connection::write() noexcept {
  for (const auto& channel : channels_) {
    channel->note_writable();
  }
  bool moved = false, any = true;
  for (int turn = 0; any && turn < sockets::turns_of(channels_.size()); ++turn) {
    any = false;
    for (std::size_t at = 0; at < channels_.size() && error_ == 0; ++at) {
      const sockets::Moved written = channels_[at]->write();
      any = any || written.any;
      if (written.error != 0) {
        end(written.error);
      }
    }
    moved = moved || any;
  }
  return moved;
}

/// What the peer had sent before it went is read first, from all streams: it may be writing that
/// has told of the end.
void Connection::end(int error) noexcept {
  for (const auto& channel : channels_) {
    sockets::Moved moved{.any = true};
    for (int call = 0; call < most_last_reads && moved.any && moved.error == 0; ++call) {
      channel->note_readable(true);
      moved = channel->read(buffer_.span());
    }
  }
  error_ = error;
  link_.break_off(error);
  for (const auto& channel : channels_) {
    channel->close();
  }
}

}  // namespace sprat::comm::endpoint
