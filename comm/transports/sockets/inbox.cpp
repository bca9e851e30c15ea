// Messages are matched in the order in which their headers come, all of them by the first stream.
// Bytes go straight into a receive that waits for them; what comes unasked before its receive is
// kept, at most what the credit of the sender allows.
#include "comm/transports/sockets/inbox.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace sprat::comm::sockets {
namespace {

/// Numbers go round: a is before b if it is less than half of them behind it.
bool is_before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

/// Of an arrival that recv() and probe() may look at.
bool is_unasked(const Arrival& one) {
  return one.request == nullptr && one.state <= Arrival::State::kept;
}

}  // namespace

void Inbox::recv(MessageRequest& request, std::uint64_t tag, std::span<std::byte> data,
                 bool tells) {
  PendingMessage& message = post(request);
  message.target = data.data();
  message.bytes = data.size();
  message.tag = tag;
  const auto waits = [tag](const Arrival& one) { return is_unasked(one) && one.tag == tag; };
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(), waits);
  if (found == arrivals_.end() && error_ != 0) {
    return fail(request, error_);
  }
  if (found == arrivals_.end()) {
    posted_.push(request);
    if (tells && data.size() > most_unasked && out_.has_room()) {
      out_.reply({.kind = StreamFrameKind::expect, .id = seen_, .tag = tag, .bytes = data.size()});
    }
    return;
  }
  if (found->state == Arrival::State::kept) {
    return hand_over(*found, request);
  }
  if (!out_.has_room()) {
    return fail(request, ENOMEM);  // the announcement stays, as if nobody had asked
  }
  accept(*found, request);
}

std::optional<std::size_t> Inbox::probe(std::uint64_t tag) const {
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(), [tag](const Arrival& one) {
    return is_unasked(one) && one.tag == tag;
  });
  return found == arrivals_.end() ? std::nullopt : std::optional(found->bytes);
}

bool Inbox::has_unasked() const {
  return std::any_of(arrivals_.begin(), arrivals_.end(), is_unasked);
}

bool Inbox::cancel(MessageRequest& request) noexcept {
  bool found = posted_.take([&](const MessageRequest& one) { return &one == &request; }) != nullptr;
  // What is on its way to the receive is dropped as it comes.
  for (InStream& in : in_) {
    if (in.whole == &request) {
      in.whole = nullptr;
      in.place = nullptr;
      --receiving_;
      found = true;
    }
  }
  for (auto at = arrivals_.begin(); at != arrivals_.end() && !found; ++at) {
    if (at->request == &request) {
      drop(*at);
      found = true;
      break;
    }
  }
  if (found) {
    fail(request, ECANCELED);
  }
  return found;
}

void Inbox::drop_forgotten() noexcept {
  for (auto at = arrivals_.begin(); at != arrivals_.end();) {
    Arrival& arrival = *at++;
    if (arrival.request != nullptr || !rules_.is_forgotten(arrival.tag)) {
      continue;
    }
    if (arrival.state == Arrival::State::kept) {
      out_.owe(arrival.bytes);  // the sender may send as much again, as if it had been received
      drop(arrival);
    } else if (arrival.state == Arrival::State::announced) {
      forget(arrival);  // its sender withdraws it once the failure has reached it
    }
  }
}

void Inbox::break_off(int error) noexcept {
  error_ = error;
  while (MessageRequest* request = posted_.take_front()) {
    fail(*request, error);
  }
  for (InStream& in : in_) {
    if (in.whole != nullptr) {
      fail(*in.whole, error);
    }
    in = {};
  }
  for (auto at = arrivals_.begin(); at != arrivals_.end();) {
    Arrival& arrival = *at++;
    if (arrival.request != nullptr) {
      fail(*arrival.request, error);
    } else if (arrival.state == Arrival::State::kept && arrival.received == arrival.bytes) {
      continue;  // it came whole, and may still be received
    }
    forget(arrival);
  }
  receiving_ = 0;
}

void Inbox::placed(std::size_t stream, std::size_t bytes) noexcept {
  InStream& in = in_[stream];
  in.left -= bytes;
  in.place = in.place == nullptr ? nullptr : in.place + bytes;
  if (in.left == 0) {
    end_body(in);
  }
}

Inbox::Fed Inbox::feed(std::size_t stream, std::span<const std::byte> bytes) noexcept {
  InStream& in = in_[stream];
  std::size_t done = 0;
  for (;;) {
    if (in.left > 0) {
      const std::size_t taken = std::min(in.left, bytes.size() - done);
      if (taken == 0) {
        return {done, Taken::yes};
      }
      if (in.place != nullptr) {
        std::copy_n(bytes.data() + done, taken, in.place);
      }
      placed(stream, taken);
      done += taken;
      continue;
    }
    done += in.header.take(bytes.subspan(done));
    if (!in.header.whole()) {
      return {done, Taken::yes};
    }
    const auto frame = decode(in.header.header());
    const Taken taken = frame ? take(stream, *frame) : Taken::nonsense;
    if (taken != Taken::yes) {
      return {done, taken};
    }
    in.header.clear();
  }
}

Inbox::Taken Inbox::take(std::size_t stream, const StreamFrame& frame) noexcept {
  // All but pieces has its place in the order of the first stream.
  if (stream != 0 && frame.kind != StreamFrameKind::piece) {
    return Taken::nonsense;
  }
  const auto sense = [](bool holds) { return holds ? Taken::yes : Taken::nonsense; };
  const auto count = [this](Taken taken) {
    seen_ += taken == Taken::yes ? 1 : 0;
    return taken;
  };
  switch (frame.kind) {
    case StreamFrameKind::message:
      return count(take_message(in_[stream], frame));
    case StreamFrameKind::scatter:
    case StreamFrameKind::announce:
    case StreamFrameKind::expected:
      return count(take_number(frame));
    case StreamFrameKind::piece:
      return take_piece(stream, frame);
    case StreamFrameKind::withdraw:
      return take_withdrawal(frame);
    case StreamFrameKind::grant:
      return sense(out_.take_grant(frame.id));
    case StreamFrameKind::refuse:
      return sense(out_.take_refusal(frame.id));
    case StreamFrameKind::credit:
      return sense(out_.take_credit(frame.bytes));
    case StreamFrameKind::expect:
      return sense(
          out_.take_expectation({frame.tag, static_cast<std::size_t>(frame.bytes), frame.id}));
  }
  return Taken::nonsense;
}

Inbox::Taken Inbox::take_message(InStream& in, const StreamFrame& frame) noexcept {
  MessageRequest* request =
      posted_.take([&frame](MessageRequest& one) { return pending(one).tag == frame.tag; });
  if (request == nullptr && rules_.is_forgotten(frame.tag)) {
    out_.owe(frame.body_bytes());
    in.arrival = nullptr;
    begin_body(in, frame, nullptr);
    return Taken::yes;
  }
  if (request == nullptr) {
    Arrival* arrival = make_arrival(frame, Arrival::State::kept);
    if (arrival == nullptr) {
      return Taken::not_yet;
    }
    arrival->begun = arrival->bytes;
    in.arrival = arrival;
    begin_body(in, frame, arrival->data.get());
    return Taken::yes;
  }
  out_.owe(frame.body_bytes());
  in.arrival = nullptr;
  if (frame.bytes > pending(*request).bytes) {
    fail_too_long(*request, frame.body_bytes());
    begin_body(in, frame, nullptr);
    return Taken::yes;
  }
  in.whole = request;
  ++receiving_;
  begin_body(in, frame, pending(*request).target);
  return Taken::yes;
}

/// A message that comes in pieces: by itself, or when it is asked for. Of one that was expected the
/// receive waits, or has been given up since: then what comes for it is dropped as it comes.
Inbox::Taken Inbox::take_number(const StreamFrame& frame) noexcept {
  const bool unasked = frame.kind == StreamFrameKind::scatter;
  const bool announced = frame.kind == StreamFrameKind::announce;
  if (frame.id != next_id_) {
    return Taken::nonsense;
  }
  if (!out_.has_room() || !has_spare()) {
    return Taken::not_yet;
  }
  MessageRequest* request =
      posted_.take([&frame](MessageRequest& one) { return pending(one).tag == frame.tag; });
  const bool unwanted = request == nullptr &&
                        (frame.kind == StreamFrameKind::expected || rules_.is_forgotten(frame.tag));
  if (unwanted && announced) {
    ++next_id_;  // its sender withdraws it, and a withdrawal of what is not known is taken
    return Taken::yes;
  }
  const auto state = request != nullptr || unwanted ? Arrival::State::placed
                     : unasked                      ? Arrival::State::kept
                                                    : Arrival::State::announced;
  Arrival* arrival = make_arrival(frame, state);
  if (arrival == nullptr) {
    return Taken::not_yet;  // only without a receive: with one nothing has to be kept
  }
  ++next_id_;
  arrival->id = frame.id;
  if (unasked && state == Arrival::State::placed) {
    out_.owe(arrival->bytes);
  }
  if (unwanted) {
    drop(*arrival);
  } else if (request != nullptr && announced) {
    accept(*arrival, *request);
  } else if (request != nullptr) {
    match(*arrival, *request);
  }
  return Taken::yes;
}

/// Of a message whose pieces come without being asked for.
void Inbox::match(Arrival& arrival, MessageRequest& request) noexcept {
  if (arrival.bytes > pending(request).bytes) {
    fail_too_long(request, arrival.bytes);
    return drop(arrival);
  }
  arrival.request = &request;
  ++receiving_;
}

Inbox::Taken Inbox::take_piece(std::size_t stream, const StreamFrame& frame) noexcept {
  Arrival* arrival = find(frame.id);
  if (arrival == nullptr) {
    // The first stream, which is in order, has told of it before; others may be ahead of that.
    const bool to_come = stream != 0 && !is_before(frame.id, next_id_);
    return to_come ? Taken::not_yet : Taken::nonsense;
  }
  // Pieces come only of what was asked for, or needs not be, and no more than was told.
  const std::size_t bytes = frame.body_bytes();
  if (arrival->state == Arrival::State::announced || bytes > arrival->bytes - arrival->begun ||
      (arrival->state != Arrival::State::dropped &&
       (frame.from > arrival->bytes || bytes > arrival->bytes - frame.from))) {
    return Taken::nonsense;
  }
  arrival->begun += bytes;
  std::byte* whole = arrival->state == Arrival::State::kept     ? arrival->data.get()
                     : arrival->state == Arrival::State::placed ? pending(*arrival->request).target
                                                                : nullptr;
  in_[stream].arrival = arrival;
  begin_body(in_[stream], frame, whole == nullptr ? nullptr : whole + frame.from);
  return Taken::yes;
}

/// The sender has given a message up: no more of it comes than it had begun.
Inbox::Taken Inbox::take_withdrawal(const StreamFrame& frame) noexcept {
  Arrival* arrival = find(frame.id);
  if (arrival == nullptr) {
    // This side has refused it, while the withdrawal was on its way.
    return is_before(frame.id, next_id_) ? Taken::yes : Taken::nonsense;
  }
  if (frame.bytes < arrival->begun || frame.bytes > arrival->bytes) {
    return Taken::nonsense;
  }
  // It came unasked and no receive will match it any more.
  if (arrival->state == Arrival::State::kept && arrival->request == nullptr) {
    out_.owe(arrival->bytes);
  }
  if (arrival->request != nullptr) {
    fail(*arrival->request, ECANCELED);
  }
  const auto left = static_cast<std::size_t>(frame.bytes);
  if (arrival->state != Arrival::State::dropped) {
    // First, for what it counts for is reckoned from its length.
    if (arrival->received < left) {
      drop(*arrival);
      arrival->bytes = left;
      return Taken::yes;
    }
    receiving_ -= arrival->request != nullptr ? 1 : 0;
    forget(*arrival);
    return Taken::yes;
  }
  arrival->bytes = left;
  settle(*arrival);
  return Taken::yes;
}

void Inbox::begin_body(InStream& in, const StreamFrame& frame, std::byte* place) noexcept {
  in.body = in.left = frame.body_bytes();
  in.place = place;
  if (in.left == 0) {
    end_body(in);
  }
}

void Inbox::end_body(InStream& in) noexcept {
  in.place = nullptr;
  if (MessageRequest* request = std::exchange(in.whole, nullptr)) {
    --receiving_;
    finish(*request, in.body);
  } else if (Arrival* arrival = std::exchange(in.arrival, nullptr)) {
    arrival->received += in.body;
    settle(*arrival);
  }
}

/// Makes sure that one more arrival can be noted.
bool Inbox::has_spare() noexcept {
  try {
    if (spare_.empty()) {
      spare_.emplace_back();
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// Null if there is no room.
Arrival* Inbox::make_arrival(const StreamFrame& frame, Arrival::State state) noexcept {
  const auto bytes = static_cast<std::size_t>(frame.bytes);
  const bool keeps = state == Arrival::State::kept;
  const std::size_t counted =
      state == Arrival::State::placed ? 0 : sizeof(Arrival) + (keeps ? bytes : 0);
  if (counted > unexpected_room_ || !has_spare()) {
    return nullptr;
  }
  Arrival& arrival = spare_.front();
  if (keeps) {
    // Without memory it is as if the limit were reached: some may be freed meanwhile.
    arrival.data.reset(new (std::nothrow) std::byte[bytes]);
    if (!arrival.data) {
      return nullptr;
    }
  }
  arrival.state = state;
  arrival.tag = frame.tag;
  arrival.bytes = bytes;
  arrivals_.splice(arrivals_.end(), spare_, spare_.begin());
  unexpected_room_ -= counted;
  return &arrival;
}

/// Asks for an announced message, or says that it does not fit. The caller has asked has_room().
void Inbox::accept(Arrival& arrival, MessageRequest& request) noexcept {
  const bool fits = arrival.bytes <= pending(request).bytes;
  out_.reply({.kind = fits ? StreamFrameKind::grant : StreamFrameKind::refuse, .id = *arrival.id});
  if (!fits) {
    fail_too_long(request, arrival.bytes);
    return forget(arrival);
  }
  if (arrival.state == Arrival::State::announced) {
    unexpected_room_ += sizeof(Arrival);
    arrival.state = Arrival::State::placed;
  }
  arrival.request = &request;
  ++receiving_;
  settle(arrival);  // it may be empty
}

/// What came before its receive, or is still coming into memory of its own.
void Inbox::hand_over(Arrival& arrival, MessageRequest& request) noexcept {
  out_.owe(arrival.bytes);
  if (arrival.bytes > pending(request).bytes) {
    fail_too_long(request, arrival.bytes);
    return drop(arrival);
  }
  arrival.request = &request;
  ++receiving_;
  settle(arrival);
}

/// What is still to come of it belongs nowhere.
void Inbox::drop(Arrival& arrival) noexcept {
  if (arrival.state == Arrival::State::kept) {
    unexpected_room_ += sizeof(Arrival) + arrival.bytes;
  } else if (arrival.state == Arrival::State::announced) {
    unexpected_room_ += sizeof(Arrival);
  }
  receiving_ -= arrival.request != nullptr ? 1 : 0;
  arrival.state = Arrival::State::dropped;
  arrival.request = nullptr;
  arrival.data.reset();
  for (InStream& in : in_) {
    if (in.arrival == &arrival) {
      in.place = nullptr;
    }
  }
  settle(arrival);
}

/// Ends it if all of it has come, unless it waits for its receive.
void Inbox::settle(Arrival& arrival) noexcept {
  if (arrival.received < arrival.bytes ||
      (arrival.request == nullptr && arrival.state != Arrival::State::dropped)) {
    return;
  }
  if (MessageRequest* request = arrival.request) {
    if (arrival.state == Arrival::State::kept) {
      std::copy_n(arrival.data.get(), arrival.bytes, pending(*request).target);
    }
    --receiving_;
    finish(*request, arrival.bytes);
  }
  forget(arrival);
}

void Inbox::forget(Arrival& arrival) noexcept {
  if (arrival.state == Arrival::State::kept) {
    unexpected_room_ += sizeof(Arrival) + arrival.bytes;
  } else if (arrival.state == Arrival::State::announced) {
    unexpected_room_ += sizeof(Arrival);
  }
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(),
                                  [&](const Arrival& one) { return &one == &arrival; });
  arrival = {};
  spare_.splice(spare_.begin(), arrivals_, found);
}

Arrival* Inbox::find(std::uint32_t id) noexcept {
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(),
                                  [id](const Arrival& one) { return one.id == id; });
  return found == arrivals_.end() ? nullptr : &*found;
}

}  // namespace sprat::comm::sockets
