// Frames go out in this order of precedence: replies to the peer, new messages, pieces of long
// ones. Replies are short and the peer may wait for them; pieces come last, so that a long message
// does not hold up others.
#include "comm/transports/sockets/outbox.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "comm/transports/sockets/stream_plan.hpp"

namespace sprat::comm::sockets {
namespace {

std::size_t credit_of(std::size_t bytes) { return frame_bytes + bytes; }

StreamFrame about(StreamFrameKind kind, const PendingMessage& message) {
  return {.kind = kind, .id = static_cast<std::uint32_t>(message.id)};
}

}  // namespace

void Outbox::send(MessageRequest& request, std::uint64_t tag, std::span<const std::byte> data) {
  PendingMessage& message = post(request);
  message.source = data.data();
  message.bytes = data.size();
  message.tag = tag;
  new_.push(request);
}

Outgoing Outbox::outgoing(std::size_t stream) noexcept {
  OutStream& out = out_[stream];
  if (!out.busy && !begin_frame(stream)) {
    return {};
  }
  const std::size_t header = std::min(out.written, frame_bytes);
  return {.header = std::span<const std::byte>(out.header).subspan(header),
          .body = out.body.subspan(out.written - header)};
}

void Outbox::wrote(std::size_t stream, std::size_t bytes) noexcept {
  OutStream& out = out_[stream];
  out.written += bytes;
  if (out.written < frame_bytes + out.body.size()) {
    return;
  }
  out.busy = false;
  out.copy.reset();
  MessageRequest* request = std::exchange(out.request, nullptr);
  if (request == nullptr) {
    return;
  }
  PendingMessage& message = pending(*request);
  message.sent += out.body.size();
  if (message.sent == message.bytes) {
    finish(*request, message.bytes);
  }
}

bool Outbox::begin_frame(std::size_t stream) noexcept {
  OutStream& out = out_[stream];
  out.written = 0;
  out.body = {};
  out.whole = false;
  out.committed = false;
  out.request = nullptr;
  // All but pieces goes through the first stream, for it has to stay in order.
  if (stream == 0 && !replies_.empty()) {
    out.header = encode(replies_.front());
    replies_.erase(replies_.begin());
    out.busy = true;
  } else if (stream == 0 && !new_.empty()) {
    out.busy = begin_message(out);
  }
  if (!out.busy && !granted_.empty()) {
    out.busy = begin_piece(out);
  }
  return out.busy;
}

bool Outbox::begin_message(OutStream& out) noexcept {
  MessageRequest& request = *new_.front();
  PendingMessage& message = pending(request);
  const bool unasked =
      message.bytes <= most_unasked && uncredited_ + credit_of(message.bytes) <= credit_bytes;
  const bool whole = unasked && !is_cut(message.bytes, streams());
  // What the peer knows by a number it may have to be told to forget.
  if (!whole && !has_room()) {
    return false;
  }
  new_.take_front();
  uncredited_ += unasked ? credit_of(message.bytes) : 0;
  StreamFrame frame{
      .kind = StreamFrameKind::message, .id = 0, .tag = message.tag, .bytes = message.bytes};
  if (whole) {
    out.body = {message.source, message.bytes};
    out.whole = true;
    out.request = &request;
  } else {
    frame.kind = unasked ? StreamFrameKind::scatter : StreamFrameKind::announce;
    frame.id = next_id_++;
    message.id = frame.id;
    (unasked ? granted_ : announced_).push(request);
    ++withdrawable_;
  }
  out.header = encode(frame);
  return true;
}

bool Outbox::begin_piece(OutStream& out) noexcept {
  MessageRequest& request = *granted_.front();
  PendingMessage& message = pending(request);
  const std::size_t bytes = next_piece(message.bytes, message.bytes - message.begun, streams());
  StreamFrame frame = about(StreamFrameKind::piece, message);
  frame.from = message.begun;
  frame.bytes = bytes;
  out.header = encode(frame);
  out.body = {message.source + message.begun, bytes};
  out.request = &request;
  message.begun += bytes;
  if (message.begun == message.bytes) {
    granted_.take_front();
    --withdrawable_;
  }
  return true;
}

bool Outbox::cancel(MessageRequest& request) noexcept {
  const auto is_it = [&request](const MessageRequest& one) { return &one == &request; };
  const bool is_new = new_.take(is_it) != nullptr;
  if (!is_new && (announced_.take(is_it) != nullptr || granted_.take(is_it) != nullptr)) {
    // The peer is told how much of it comes all the same.
    StreamFrame frame = about(StreamFrameKind::withdraw, pending(request));
    frame.bytes = pending(request).begun;
    reply(frame);
    --withdrawable_;
  }
  for (OutStream& out : out_) {
    if (out.busy && out.request == &request && !give_up(out)) {
      return false;
    }
  }
  fail(request, ECANCELED);
  return true;
}

/// A frame that is begun has to be ended, or nothing behind it could be read. Its bytes are the
/// caller's again, so a copy of them goes.
bool Outbox::give_up(OutStream& out) noexcept {
  if (out.whole && out.written == 0 && !out.committed) {
    uncredited_ -= credit_of(out.body.size());
    out.busy = false;
    out.request = nullptr;
    return true;
  }
  out.copy.reset(new (std::nothrow) std::byte[out.body.size()]);
  if (!out.copy && !out.body.empty()) {
    return false;
  }
  std::copy_n(out.body.data(), out.body.size(), out.copy.get());
  out.body = {out.copy.get(), out.body.size()};
  out.request = nullptr;
  return true;
}

void Outbox::break_off(int error) noexcept {
  for (RequestQueue* queue : {&new_, &announced_, &granted_}) {
    while (MessageRequest* request = queue->take_front()) {
      fail(*request, error);
    }
  }
  for (OutStream& out : out_) {
    if (out.busy && out.request != nullptr) {
      fail(*out.request, error);
    }
    out = {};
  }
  replies_.clear();
  withdrawable_ = 0;
}

bool Outbox::take_grant(std::uint32_t id) noexcept {
  // No such send: it was cancelled, and the peer will read of that.
  MessageRequest* request =
      announced_.take([id](MessageRequest& one) { return pending(one).id == id; });
  if (request == nullptr) {
    return true;
  }
  if (pending(*request).bytes > 0) {
    granted_.push(*request);
  } else {
    --withdrawable_;
    finish(*request, 0);
  }
  return true;
}

/// The receiver's buffer was too short. That is the receiver's error; the send has been served.
bool Outbox::take_refusal(std::uint32_t id) noexcept {
  MessageRequest* request =
      announced_.take([id](MessageRequest& one) { return pending(one).id == id; });
  if (request != nullptr) {
    --withdrawable_;
    finish(*request, pending(*request).bytes);
  }
  return true;
}

bool Outbox::take_credit(std::uint64_t bytes) noexcept {
  // Nobody can match more than was sent.
  if (bytes > uncredited_) {
    return false;
  }
  uncredited_ -= static_cast<std::size_t>(bytes);
  return true;
}

/// Each send that the peer knows by a number keeps a place for its withdrawal besides, since
/// cancel() cannot report that memory has run out.
bool Outbox::has_room() noexcept {
  const std::size_t wanted = replies_.size() + withdrawable_ + 2;
  if (replies_.capacity() >= wanted) {
    return true;
  }
  try {
    replies_.reserve(std::max(wanted, 2 * replies_.capacity()));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// The sender is told of a quarter of the credit at a time: a frame for each message would double
/// their number.
void Outbox::owe(std::size_t bytes) noexcept {
  owed_ += credit_of(bytes);
  if (owed_ >= credit_bytes / 4 && has_room()) {
    StreamFrame frame{.kind = StreamFrameKind::credit};
    frame.bytes = std::exchange(owed_, 0);
    reply(frame);
  }
}

}  // namespace sprat::comm::sockets
