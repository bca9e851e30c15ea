// One rank's messages to and from one peer that shares memory.
#include "comm/transports/shm/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace sprat::comm {

void ShmLink::send(MessageRequest& request, std::uint64_t tag, std::span<const std::byte> data) {
  PendingMessage& message = post(request);
  message.source = data.data();
  message.bytes = data.size();
  message.tag = tag;
  if (broken_) {
    return fail(request, EPROTO);
  }
  new_.push(request);
  write_replies();
  write_new();
}

void ShmLink::recv(MessageRequest& request, std::uint64_t tag, std::span<std::byte> data) {
  PendingMessage& message = post(request);
  message.target = data.data();
  message.bytes = data.size();
  message.tag = tag;
  const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                  [tag](const Unexpected& one) { return one.tag == tag; });
  if (found == unexpected_.end()) {
    return broken_ ? fail(request, EPROTO) : posted_.push(request);
  }
  if (found->announced && !has_room()) {
    return fail(request, ENOMEM);  // the announcement stays, as if nobody had asked
  }
  unexpected_bytes_ -= sizeof(Unexpected) + (found->announced ? 0 : found->bytes);
  if (found->announced) {
    accept(request, found->id, found->bytes);
  } else if (found->bytes > data.size()) {
    fail_too_long(request, found->bytes);
  } else {
    std::copy_n(found->data.get(), found->bytes, data.data());
    finish(request, found->bytes);
  }
  if (!found->announced) {  // an announced message has used no credit
    owe(found->bytes);
  }
  unexpected_.erase(found);
}

std::optional<std::size_t> ShmLink::probe(std::uint64_t tag) const {
  const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                  [tag](const Unexpected& one) { return one.tag == tag; });
  return found == unexpected_.end() ? std::nullopt : std::optional(found->bytes);
}

bool ShmLink::progress() noexcept {
  if (broken_) {
    return false;
  }
  // Reading comes first, for it makes replies. They go out before anything else: the peer may wait
  // for them, and they are short. Pieces come last, so that a long message does not hold up others.
  bool moved = read();
  pay_credit();  // there may have been no memory for it when the last message came
  moved |= write_replies();
  moved |= write_new();
  moved |= write_pieces();
  return moved;
}

void ShmLink::cancel(MessageRequest& request) noexcept {
  const auto is_it = [&request](const MessageRequest& one) { return &one == &request; };
  // The peer knows of this send and may wait for its bytes.
  if (announced_.take(is_it) != nullptr || granted_.take(is_it) != nullptr) {
    reply(FrameKind::withdraw, pending(request).id);
    --withdrawable_;
  } else if (new_.take(is_it) == nullptr && posted_.take(is_it) == nullptr) {
    // The peer has been asked for the bytes and sends them: they are dropped as they come.
    for (Inbound& one : inbound_) {
      if (one.request == &request) {
        one.request = nullptr;
      }
    }
  }
  fail(request, ECANCELED);
}

void ShmLink::drop_forgotten() noexcept {
  std::erase_if(unexpected_, [this](const Unexpected& one) {
    if (!is_forgotten(one.tag)) {
      return false;
    }
    unexpected_bytes_ -= sizeof(Unexpected) + (one.announced ? 0 : one.bytes);
    if (!one.announced) {
      owe(one.bytes);
    }
    return true;
  });
}

bool ShmLink::write_replies() {
  std::size_t written = 0;
  while (written < replies_.size() && out_.fits(0)) {
    out_.write(replies_[written++]);
  }
  replies_.erase(replies_.begin(), replies_.begin() + static_cast<std::ptrdiff_t>(written));
  return written > 0;
}

bool ShmLink::write_new() {
  bool moved = false;
  // In order, and behind all replies: messages of equal tags must not overtake each other.
  while (!new_.empty() && replies_.empty()) {
    MessageRequest& request = *new_.front();
    PendingMessage& message = pending(request);
    const bool whole = message.bytes <= FrameLane::max_payload &&
                       uncredited_ + frame_bytes(message.bytes) <= credit_bytes;
    RingFrame frame{.tag = message.tag, .total = message.bytes};
    if (!out_.fits(whole ? message.bytes : 0) || (!whole && !has_room())) {
      break;
    }
    new_.take_front();
    if (whole) {
      // The bytes are in the ring, so the caller's buffer is free at once.
      out_.write(frame, {message.source, message.bytes});
      uncredited_ += frame_bytes(message.bytes);
      finish(request, message.bytes);
    } else {
      frame.kind = FrameKind::announce;
      frame.id = message.id = next_id_++;
      out_.write(frame);
      announced_.push(request);
      ++withdrawable_;
    }
    moved = true;
  }
  return moved;
}

bool ShmLink::write_pieces() {
  bool moved = false;
  // One ring's worth a call: a peer that reads as fast as this writes would keep it here for ever.
  for (std::size_t budget = FrameLane::ring_bytes;
       budget > 0 && !granted_.empty() && replies_.empty();) {
    MessageRequest& request = *granted_.front();
    PendingMessage& message = pending(request);
    const std::size_t bytes = std::min(message.bytes - message.sent, FrameLane::max_payload);
    if (!out_.fits(bytes)) {
      break;
    }
    out_.write(
        {.tag = message.tag, .total = message.bytes, .id = message.id, .kind = FrameKind::piece},
        {message.source + message.sent, bytes});
    message.sent += bytes;
    if (message.sent == message.bytes) {
      granted_.take_front();
      --withdrawable_;
      finish(request, message.bytes);
    }
    budget -= std::min(budget, frame_bytes(bytes));
    moved = true;
  }
  return moved;
}

bool ShmLink::read() {
  RingFrame frame;
  bool moved = false;
  // A peer writes whatever it likes into its memory. peek() copies the header, and only the copy is
  // checked and used, so that it cannot change in between.
  for (std::size_t budget = FrameLane::ring_bytes; budget > 0 && in_.peek(frame);) {
    const Taken taken = in_.sound(frame) ? take(frame) : Taken::nonsense;
    if (taken == Taken::nonsense) {
      break_link();
      return true;
    }
    if (taken == Taken::not_yet) {
      break;  // no room to keep it: it stays in the ring, and the peer waits
    }
    in_.consume(frame);
    budget -= std::min(budget, frame_bytes(frame.bytes));
    moved = true;
  }
  return moved;
}

ShmLink::Taken ShmLink::take(const RingFrame& frame) {
  const auto named = [&frame](MessageRequest& one) { return pending(one).id == frame.id; };
  switch (frame.kind) {
    case FrameKind::message:
      return take_message(frame);
    case FrameKind::announce:
      return take_announcement(frame);
    case FrameKind::piece:
      return take_piece(frame);
    case FrameKind::grant:
      // No such send: it was cancelled, and the peer will read the withdrawal.
      if (MessageRequest* request = announced_.take(named)) {
        granted_.push(*request);
      }
      return Taken::yes;
    case FrameKind::refuse:
      // The receiver's buffer was too short. That is the receiver's error; the send has been
      // served.
      if (MessageRequest* request = announced_.take(named)) {
        --withdrawable_;
        finish(*request, pending(*request).bytes);
      }
      return Taken::yes;
    case FrameKind::withdraw:
      withdraw_inbound(frame.id);
      return Taken::yes;
    case FrameKind::credit:
      // Nobody can match more than was sent.
      if (frame.total > uncredited_) {
        return Taken::nonsense;
      }
      uncredited_ -= frame.total;
      return Taken::yes;
  }
  return Taken::nonsense;
}

ShmLink::Taken ShmLink::take_message(const RingFrame& frame) {
  if (frame.total != frame.bytes) {
    return Taken::nonsense;
  }
  MessageRequest* request =
      posted_.take([&frame](MessageRequest& one) { return pending(one).tag == frame.tag; });
  if (request == nullptr && is_forgotten(frame.tag)) {
    owe(frame.bytes);  // the sender may send as much again, as if it had been received
    return Taken::yes;
  }
  if (request == nullptr) {
    return keep(frame, false) ? Taken::yes : Taken::not_yet;
  }
  if (frame.total > pending(*request).bytes) {
    fail_too_long(*request, frame.total);
  } else {
    in_.copy_payload(frame, pending(*request).target);
    finish(*request, frame.total);
  }
  owe(frame.bytes);
  return Taken::yes;
}

/// A whole message has found its receive, so the sender may send as much again.
void ShmLink::owe(std::size_t payload) {
  owed_ += frame_bytes(payload);
  pay_credit();
}

/// The sender is told of a quarter of the credit at a time: a frame for each message would double
/// their number.
void ShmLink::pay_credit() {
  if (owed_ >= credit_bytes / 4 && has_room()) {
    replies_.push_back({.total = std::exchange(owed_, 0), .kind = FrameKind::credit});
    write_replies();
  }
}

/// Makes sure that one more reply and one more long message can be noted without allocating, since
/// progress() and cancel() cannot report that memory has run out. Each send that the peer knows of
/// keeps a place for its withdrawal besides.
bool ShmLink::has_room() noexcept {
  const auto grow = [](auto& list, std::size_t wanted) {
    if (list.capacity() < wanted) {
      list.reserve(std::max(wanted, 2 * list.capacity()));
    }
  };
  try {
    grow(replies_, replies_.size() + withdrawable_ + 1);
    grow(inbound_, inbound_.size() + 1);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

ShmLink::Taken ShmLink::take_announcement(const RingFrame& frame) {
  if (!has_room()) {
    return Taken::not_yet;
  }
  MessageRequest* request =
      posted_.take([&frame](MessageRequest& one) { return pending(one).tag == frame.tag; });
  if (request == nullptr && is_forgotten(frame.tag)) {
    return Taken::yes;  // its sender withdraws it once the failure has reached it
  }
  if (request == nullptr) {
    return keep(frame, true) ? Taken::yes : Taken::not_yet;
  }
  accept(*request, frame.id, frame.total);
  return Taken::yes;
}

ShmLink::Taken ShmLink::take_piece(const RingFrame& frame) {
  const auto found = std::find_if(inbound_.begin(), inbound_.end(),
                                  [&frame](const Inbound& one) { return one.id == frame.id; });
  // Pieces come only of messages that were asked for, and no more than were announced.
  if (found == inbound_.end() || frame.bytes > found->bytes - found->received) {
    return Taken::nonsense;
  }
  if (found->request != nullptr) {
    in_.copy_payload(frame, pending(*found->request).target + found->received);
  }
  found->received += frame.bytes;
  if (found->received == found->bytes) {
    if (found->request != nullptr) {
      finish(*found->request, found->bytes);
    }
    inbound_.erase(found);
  }
  return Taken::yes;
}

/// Stores what no receive asks for yet; false if there is no room.
bool ShmLink::keep(const RingFrame& frame, bool announced) {
  const std::size_t bytes = sizeof(Unexpected) + (announced ? 0 : frame.bytes);
  if (unexpected_bytes_ + bytes > rules_.most_bytes) {
    return false;
  }
  try {
    Unexpected one{frame.tag, frame.id, frame.total, nullptr, announced};
    if (!announced) {
      one.data = std::make_unique_for_overwrite<std::byte[]>(frame.bytes);
      in_.copy_payload(frame, one.data.get());
    }
    unexpected_.push_back(std::move(one));
  } catch (const std::bad_alloc&) {
    return false;  // as if the limit were reached: memory may be freed meanwhile
  }
  unexpected_bytes_ += bytes;
  return true;
}

/// Asks the peer for an announced message's pieces, or says that they do not fit. The caller has
/// asked has_room().
void ShmLink::accept(MessageRequest& request, std::uint64_t id, std::size_t bytes) {
  if (bytes > pending(request).bytes) {
    fail_too_long(request, bytes);
    return reply(FrameKind::refuse, id);
  }
  inbound_.push_back({id, bytes, 0, &request});
  reply(FrameKind::grant, id);
}

void ShmLink::withdraw_inbound(std::uint64_t id) {
  const auto kept =
      std::find_if(unexpected_.begin(), unexpected_.end(),
                   [id](const Unexpected& one) { return one.announced && one.id == id; });
  if (kept != unexpected_.end()) {
    unexpected_bytes_ -= sizeof(Unexpected);
    unexpected_.erase(kept);
    return;
  }
  const auto found = std::find_if(inbound_.begin(), inbound_.end(),
                                  [id](const Inbound& one) { return one.id == id; });
  if (found == inbound_.end()) {
    return;  // this side has refused it, while the withdrawal was on its way
  }
  if (found->request != nullptr) {
    fail(*found->request, ECANCELED);
  }
  inbound_.erase(found);
}

void ShmLink::reply(FrameKind kind, std::uint64_t id) {
  replies_.push_back({.id = id, .kind = kind});
  write_replies();
}

void ShmLink::break_link() {
  // Where one frame is nonsense, nothing after it can be found: no request of this peer can end
  // well.
  broken_ = true;
  for (RequestQueue* queue : {&new_, &announced_, &granted_, &posted_}) {
    while (MessageRequest* request = queue->take_front()) {
      fail(*request, EPROTO);
    }
  }
  for (const Inbound& one : inbound_) {
    if (one.request != nullptr) {
      fail(*one.request, EPROTO);
    }
  }
  inbound_.clear();
  withdrawable_ = 0;
}

}  // namespace sprat::comm
