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

/// What PendingMessage::sent counts a written header for that tells a message's number. Its pieces
/// may overtake it on other streams, and nobody drives a rank's wire on which it awaits nothing: a
/// send whose pieces alone have gone is not done, or the peer might never read of it.
constexpr std::size_t number_told = 1;

/// Of a message that is announced. An answer to what has not been told yet is none.
bool is_told_as(std::uint32_t id, MessageRequest& request) {
  return pending(request).id == id && pending(request).sent == number_told;
}

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
  Outgoing first;
  outgoing(stream, {&first, 1}, 1);
  return first;
}

/// Of several streams each has one frame at a time: pieces that one took ahead the others would
/// lack.
std::size_t Outbox::outgoing(std::size_t stream, std::span<Outgoing> frames,
                             std::size_t most_bytes) noexcept {
  OutStream& out = out_[stream];
  const std::size_t most_begun = streams() == 1 ? std::min(frames.size(), frames_at_once) : 1;
  std::size_t given = 0;
  for (std::size_t bytes = 0; given < frames.size() && bytes < most_bytes; ++given) {
    if (given == out.begun && (given == most_begun || !begin_frame(stream))) {
      break;
    }
    const OutFrame& frame = out.frames[given];
    const std::size_t written = given == 0 ? out.written : 0;
    const std::size_t header = std::min(written, frame_bytes);
    frames[given] = {.header = std::span<const std::byte>(frame.header).subspan(header),
                     .body = frame.body.subspan(written - header)};
    bytes += frames[given].bytes();
  }
  return given;
}

void Outbox::wrote(std::size_t stream, std::size_t bytes) noexcept {
  OutStream& out = out_[stream];
  out.written += bytes;
  while (out.begun > 0 && out.written >= frame_bytes + out.frames[0].body.size()) {
    out.written -= frame_bytes + out.frames[0].body.size();
    end_first(out);
  }
}

void Outbox::take_out(OutStream& out, std::size_t frame) noexcept {
  const auto begin = out.frames.begin() + static_cast<std::ptrdiff_t>(frame);
  std::move(begin + 1, out.frames.begin() + static_cast<std::ptrdiff_t>(out.begun), begin);
  out.frames[--out.begun] = {};
}

void Outbox::end_first(OutStream& out) noexcept {
  MessageRequest* request = out.frames[0].request;
  const bool whole = out.frames[0].whole, tells_number = out.frames[0].tells_number;
  const std::size_t bytes = out.frames[0].body.size();
  take_out(out, 0);
  out.committed = false;
  if (request == nullptr) {
    return;
  }
  PendingMessage& message = pending(*request);
  message.sent += tells_number ? number_told : bytes;
  // An empty one that is announced has no pieces, and ends with the peer's answer.
  if (whole || (message.bytes > 0 && message.sent == message.bytes + number_told)) {
    finish(*request, message.bytes);
  }
}

bool Outbox::begin_frame(std::size_t stream) noexcept {
  OutStream& out = out_[stream];
  OutFrame& frame = out.frames[out.begun];
  bool begun = false;
  // All but pieces goes through the first stream, for it has to stay in order.
  if (stream == 0 && !replies_.empty()) {
    frame.header = encode(replies_.front());
    replies_.erase(replies_.begin());
    begun = true;
  } else if (stream == 0 && !new_.empty()) {
    begun = begin_message(frame);
  }
  if (!begun && !granted_.empty()) {
    begun = begin_piece(frame);
  }
  out.begun += begun ? 1 : 0;
  return begun;
}

bool Outbox::goes_unasked(MessageRequest& request) const {
  const std::size_t bytes = pending(request).bytes;
  return bytes <= most_unasked && uncredited_ + credit_of(bytes) <= credit_bytes;
}

bool Outbox::begin_message(OutFrame& into) noexcept {
  MessageRequest& request = *new_.front();
  PendingMessage& message = pending(request);
  const bool unasked = goes_unasked(request);
  const bool whole = unasked && !is_cut(message.bytes, streams());
  // What the peer knows by a number it may have to be told to forget.
  if (!whole && !has_room()) {
    return false;
  }
  new_.take_front();
  uncredited_ += unasked ? credit_of(message.bytes) : 0;
  const bool expected = !unasked && message.bytes > 0 && receives_.take(message.tag, message.bytes);
  receives_.sent(message.tag, expected);
  StreamFrame frame{
      .kind = StreamFrameKind::message, .id = 0, .tag = message.tag, .bytes = message.bytes};
  if (whole) {
    into.body = {message.source, message.bytes};
    into.whole = true;
  } else {
    into.tells_number = true;
    frame.kind = unasked    ? StreamFrameKind::scatter
                 : expected ? StreamFrameKind::expected
                            : StreamFrameKind::announce;
    frame.id = next_id_++;
    message.id = frame.id;
    (unasked || expected ? granted_ : announced_).push(request);
    ++withdrawable_;
  }
  into.header = encode(frame);
  into.request = &request;
  return true;
}

bool Outbox::begin_piece(OutFrame& into) noexcept {
  MessageRequest& request = *granted_.front();
  PendingMessage& message = pending(request);
  const std::size_t bytes = next_piece(message.bytes, message.bytes - message.begun, streams());
  StreamFrame frame = about(StreamFrameKind::piece, message);
  frame.from = message.begun;
  frame.bytes = bytes;
  into.header = encode(frame);
  into.body = {message.source + message.begun, bytes};
  into.request = &request;
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
    for (std::size_t frame = out.begun; frame-- > 0;) {
      if (out.frames[frame].request == &request && !give_up(out, frame)) {
        return false;
      }
    }
  }
  fail(request, ECANCELED);
  return true;
}

/// A frame of which some has gone has to be ended, or nothing behind it could be read, and one with
/// a number has been counted. Their bytes are the caller's again, so a copy of them goes.
bool Outbox::give_up(OutStream& out, std::size_t frame) noexcept {
  OutFrame& given_up = out.frames[frame];
  const bool has_begun = frame == 0 && (out.written > 0 || out.committed);
  if (given_up.whole && !has_begun) {
    uncredited_ -= credit_of(given_up.body.size());
    take_out(out, frame);
    return true;
  }
  given_up.copy.reset(new (std::nothrow) std::byte[given_up.body.size()]);
  if (!given_up.copy && !given_up.body.empty()) {
    return false;
  }
  std::copy_n(given_up.body.data(), given_up.body.size(), given_up.copy.get());
  given_up.body = {given_up.copy.get(), given_up.body.size()};
  given_up.request = nullptr;
  return true;
}

void Outbox::break_off(int error) noexcept {
  for (RequestQueue* queue : {&new_, &announced_, &granted_}) {
    while (MessageRequest* request = queue->take_front()) {
      fail(*request, error);
    }
  }
  for (OutStream& out : out_) {
    for (std::size_t frame = 0; frame < out.begun; ++frame) {
      if (MessageRequest* request = out.frames[frame].request) {
        fail(*request, error);
      }
    }
    out = {};
  }
  replies_.clear();
  withdrawable_ = 0;
}

bool Outbox::take_grant(std::uint32_t id) noexcept {
  // No such send: it was cancelled, and the peer will read of that.
  MessageRequest* request =
      announced_.take([id](MessageRequest& one) { return is_told_as(id, one); });
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
      announced_.take([id](MessageRequest& one) { return is_told_as(id, one); });
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

/// The sender is told of much of the credit at a time: a frame for each message would double their
/// number, and each costs the kernel as much as a tenth of a MiB.
void Outbox::owe(std::size_t bytes) noexcept {
  owed_ += credit_of(bytes);
  if (owed_ >= most_owed && has_room()) {
    StreamFrame frame{.kind = StreamFrameKind::credit};
    frame.bytes = std::exchange(owed_, 0);
    reply(frame);
  }
}

}  // namespace sprat::comm::sockets
