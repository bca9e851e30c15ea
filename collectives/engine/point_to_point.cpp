#include "collectives/engine/point_to_point.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <set>
#include <span>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::collectives {
namespace {

using comm::Clock;
using RequestState = comm::MessageRequest::State;

// A wire's error is usually a peer's death, which the control thread explains a moment later.
constexpr std::chrono::seconds news_grace{2};

// As with collectives: whoever has waited so long asks, and again so often.
constexpr std::chrono::milliseconds question_after{100};
constexpr std::chrono::seconds question_again{5};
// One message of a communicator at a time, lest a thousand that wait flood the coordinator.
constexpr std::chrono::milliseconds between_questions{100};

// The highest bit tells these tags from those of collectives; then communicator and the caller's
// tag, and at the end whether the message is the library's own.
std::uint64_t wire_tag(std::uint64_t communicator, const Message& message) {
  static_assert(comm::Context::communicator_bits == 15);
  return std::uint64_t{1} << (comm::tag_bits - 1) | (communicator & 0x7fff) << 47 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(message.tag)) << 15 |
         (message.purpose.empty() ? 0u : 1u);
}

double seconds_of(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

PointToPoint::PointToPoint(std::shared_ptr<comm::Context> context, Executor& executor)
    : context_(std::move(context)),
      membership_(executor.membership()),
      recorder_(executor.recorder()),
      scope_(executor.scope()),
      digests_(executor.digests()),
      counts_(membership_.world_ranks.size()) {
  const auto& ranks = membership_.world_ranks;
  const auto local = [this](int world) { return context_->shares_memory(world); };
  senders_.front() = {&context_->messages(ranks[membership_.rank]), true};
  if (const auto other = std::ranges::find_if_not(ranks, local); other != ranks.end()) {
    senders_.back() = {&context_->messages(*other), false};
  }
  const auto token = context_->take_token();
  context_->add(this);
}

PointToPoint::~PointToPoint() {
  if (!context_->here()) {
    return;
  }
  if (std::uncaught_exceptions() == 0) {  // otherwise the caller has given up
    drain();
  }
  context_->remove(this);
  const auto token = context_->take_token();  // other drivers move the same transports
  for (const auto& message : waiting_) {
    context_->end_messages(1);
    recorder_.ended(message->entry, context_->wait_policy().now(), false);
    message->fail(
        Error(ErrorCode::aborted, text(describe(*message), ": its communicator is gone")));
  }
  for (const auto& message : in_flight_) {
    withdraw(*message);
    message->fail(
        Error(ErrorCode::aborted, text(describe(*message), ": its communicator is gone")));
  }
  std::vector<comm::Drivers::Exchanged> exchanged;
  for (std::size_t peer = 0; peer < counts_.size(); ++peer) {
    if (counts_[peer].sent + counts_[peer].received > 0) {
      exchanged.push_back(
          {membership_.world_ranks[peer], counts_[peer].sent, counts_[peer].received});
    }
  }
  context_->note_messages(membership_.id, std::move(exchanged));
}

/// Until every send has been received, has failed, or goes to a rank that has left.
void PointToPoint::drain() {
  context_->drive_until([this] {
    const auto token = context_->take_token();
    return scope_->first() != nullptr || std::ranges::none_of(in_flight_, [&](const auto& one) {
             return one->sends && !context_->departed(membership_.world_ranks[one->peer]);
           });
  });
}

void PointToPoint::post(const std::shared_ptr<Message>& message) {
  const auto token = context_->take_token();
  const auto now = context_->wait_policy().now();
  message->posted = now;
  message->deadline = now + message->timeout;
  message->entry =
      recorder_.posted(message->sends, message->peer, message->tag, message->bytes, now);
  context_->begin_messages(1);
  // What fails at once is not sent.
  const bool over = scope_->first() != nullptr;
  const bool waits =
      !message->sends &&
      (message->peer == any_source || std::ranges::any_of(waiting_, [&](const auto& earlier) {
         return wire_tag(membership_.id, *earlier) == wire_tag(membership_.id, *message);
       }));
  if (waits || over) {
    waiting_.push_back(message);
  } else {
    start(*message);
    in_flight_.push_back(message);
  }
  advance();
}

void PointToPoint::start(Message& message) {
  const int world = membership_.world_ranks[message.peer];
  comm::MessageTransport& transport = context_->messages(world);
  const std::uint64_t tag = wire_tag(membership_.id, message);
  if (is_digested(message)) {  // in the order in which both sides match their messages
    if (message.sends) {
      digests_.sends(message.peer, message.tag, {message.data, message.bytes}, message.posted);
    } else {
      message.number = digests_.receives(message.peer, message.tag);
    }
  }
  if (message.sends) {
    ++counts_[message.peer].sent;
    transport.send(message.request, world, tag, {message.data, message.bytes});
  } else {
    transport.recv(message.request, world, tag, {message.data, message.bytes});
  }
  const bool local = context_->shares_memory(world);
  move(transport, local);
  context_->ring(std::span(&world, local ? 1 : 0));
}

/// What comes by it may be what another thread sleeps for. Of this host's, whoever wrote it has
/// rung this rank's bell; a wire tells of it by its descriptors, and no more once this has taken it
/// in.
void PointToPoint::move(comm::MessageTransport& transport, bool local) {
  if (transport.progress() && !local) {
    context_->ring_self();
  }
}

// In the order of the calls: a receive gets the first message that no earlier one can have.
bool PointToPoint::start_waiting() {
  bool moved = false;
  std::set<std::uint64_t> taken;  // tags that an earlier receive still waits for
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const std::shared_ptr<Message> message = *at;
    const std::uint64_t tag = wire_tag(membership_.id, *message);
    const bool first = !taken.contains(tag);
    if (first && (message->peer != any_source || find_source(*message))) {
      at = waiting_.erase(at);
      start(*message);
      in_flight_.push_back(message);
      moved = true;
      continue;
    }
    taken.insert(tag);
    ++at;
  }
  return moved;
}

/// Transports take turns, and so do the senders of each, so that none starves the others.
bool PointToPoint::find_source(Message& message) {
  const std::uint64_t tag = wire_tag(membership_.id, message);
  for (Senders& senders : senders_) {
    const auto sender = senders.transport == nullptr ? std::nullopt : first_sender(senders, tag);
    if (!sender) {
      continue;
    }
    const auto& ranks = membership_.world_ranks;
    message.peer = static_cast<int>(std::ranges::find(ranks, *sender) - ranks.begin());
    senders.last = *sender;
    if (&senders == &senders_.front()) {
      std::swap(senders_.front(), senders_.back());
    } else if (senders_.front().transport != nullptr) {
      // A caller whose receives are all served at once never waits, and so never drives the other.
      move(*senders_.front().transport, senders_.front().local);
    }
    return true;
  }
  return false;
}

/// The first one behind the last from whom a message has come that no receive asked for, as world
/// ranks go round. Of a transport that knows from whom anything has come, only those are asked,
/// which are few however many ranks there are.
std::optional<int> PointToPoint::first_sender(const Senders& senders, std::uint64_t tag) const {
  const auto& members = membership_.world_ranks;
  const auto unasked = senders.transport->unasked();
  const std::span<const int> ranks = unasked ? *unasked : std::span<const int>(members);
  // Communicators of other ranks may have the same number in tags.
  const auto sends = [&](int world) {
    return context_->shares_memory(world) == senders.local &&
           senders.transport->probe(world, tag).has_value() &&
           (!unasked || std::ranges::find(members, world) != members.end());
  };
  auto next = unasked ? std::ranges::upper_bound(ranks, senders.last)
                      : std::ranges::find(ranks, senders.last);
  next += !unasked && next != ranks.end() ? 1 : 0;
  if (const auto found = std::find_if(next, ranks.end(), sends); found != ranks.end()) {
    return *found;
  }
  const auto found = std::find_if(ranks.begin(), next, sends);
  return found == next ? std::nullopt : std::optional(*found);
}

[[gnu::hot]] comm::Advance PointToPoint::advance() noexcept {
  bool moved = false;
  const bool look_at_clock = ++idle_calls_ % 64 == 0;
  const Error* failure = scope_->first();
  if (!waiting_.empty() && (failure != nullptr || look_at_clock)) {
    moved |= end_waiting(failure);
  }
  if (!waiting_.empty() && failure == nullptr) {
    moved |= start_waiting();
  }
  for (auto at = in_flight_.begin(); at != in_flight_.end();) {
    const std::shared_ptr<Message> message = *at;
    if (failure == nullptr && goes_on(*message, look_at_clock)) {
      ++at;
      continue;
    }
    at = in_flight_.erase(at);
    moved = true;
    try {
      if (failure != nullptr) {
        throw Error(failure->code(), text(describe(*message), ": ", failure->what()),
                    failure->rank());
      }
      check(*message);
      context_->end_messages(1);
      counts_[message->peer].received += message->sends ? 0 : 1;
      const auto now = context_->wait_policy().now();
      recorder_.ended(message->entry, now, true);
      if (!message->sends && is_digested(*message)) {
        digests_.received(message->peer, message->tag, message->number,
                          {message->data, message->bytes}, now);
      }
      if (message->warned) {
        log().warn("{}: {} came {:.1f} s late", describe(*message), awaited(*message),
                   seconds_of(now - message->posted));
      }
      message->finish();
    } catch (const Error& error) {
      withdraw(*message);
      context_->fail(*scope_, error);
      message->fail(error, scope_);
    }
  }
  return {.moved = moved};
}

// Also while a wire has failed and the reason, usually a peer's death, is not known yet, and while
// what a peer sent before it left may still be on its way.
bool PointToPoint::goes_on(Message& message, bool look_at_clock) {
  const comm::MessageRequest& request = message.request;
  const bool gone = request.state == RequestState::posted &&
                    context_->departed(membership_.world_ranks[message.peer]);
  const bool cut = gone || (request.state == RequestState::failed && request.error != EMSGSIZE);
  if (request.state != RequestState::posted && !cut) {
    return false;
  }
  if (!look_at_clock) {
    return true;
  }
  const auto now = context_->wait_policy().now();
  if (cut && message.cut == Clock::time_point{}) {
    message.cut = now;
  }
  warn_if_long(message, now);
  ask_if_long(message, now);
  return cut ? now - message.cut < news_grace : now <= message.deadline;
}

void PointToPoint::warn_if_long(Message& message, Clock::time_point now) const {
  const auto after = context_->config().straggler_after;
  if (message.warned || after.count() == 0 || now - message.posted < after) {
    return;
  }
  message.warned = true;
  log().warn("{} has waited {:.1f} s for {}", describe(message), seconds_of(now - message.posted),
             awaited(message));
}

// The peer may have freed this communicator: then nothing comes, and the coordinator fails it once
// the peer has said so. A receive from any rank asks nobody, for another may still send.
void PointToPoint::ask_if_long(Message& message, Clock::time_point now) {
  if (now - message.posted < question_after || now < next_question_ ||
      (message.asked != Clock::time_point{} && now - message.asked < question_again)) {
    return;
  }
  message.asked = now;
  next_question_ = now + between_questions;
  const Counts& counts = counts_[message.peer];
  const auto question = comm::encode({.sends = message.sends,
                                      .asker = membership_.world_ranks[membership_.rank],
                                      .peer = membership_.world_ranks[message.peer],
                                      .count = message.sends ? counts.sent : counts.received});
  if (question) {
    context_->report_stall(membership_.id, *question, {}, {});
  }
}

std::string PointToPoint::awaited(const Message& message) const {
  return message.peer == any_source
             ? "a message"
             : context_->describe_peer(membership_.world_ranks[message.peer]);
}

// Receives that no message has matched, and none will: the communicator has failed, or time is up.
bool PointToPoint::end_waiting(const Error* failure) {
  const auto now = context_->wait_policy().now();
  bool moved = false;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const std::shared_ptr<Message> message = *at;
    if (failure == nullptr && now <= message->deadline) {
      warn_if_long(*message, now);
      ++at;
      continue;
    }
    at = waiting_.erase(at);
    context_->end_messages(1);
    recorder_.ended(message->entry, now, false);
    moved = true;
    if (failure != nullptr) {
      message->fail(
          Error(failure->code(), text(describe(*message), ": ", failure->what()), failure->rank()),
          scope_);
      continue;
    }
    const Error error(ErrorCode::timeout,
                      text(describe(*message), ": no message came within ",
                           1e-3 * static_cast<double>(message->timeout.count()), " s"));
    context_->fail(*scope_, error);
    message->fail(error, scope_);
  }
  return moved;
}

// Throws unless the message has arrived as it should.
void PointToPoint::check(Message& message) {
  const comm::MessageRequest& request = message.request;
  const int world = membership_.world_ranks[message.peer];
  if (request.state == RequestState::posted && context_->departed(world)) {
    throw Error(ErrorCode::lost_peer,
                text(describe(message), ": ", context_->describe_peer(world),
                     " has left the job in good order"),
                world);
  }
  if (request.state == RequestState::posted) {
    throw Error(ErrorCode::timeout,
                text(describe(message), ": no end after ",
                     1e-3 * static_cast<double>(message.timeout.count()), " s; ",
                     context_->describe_peer(world), " has not called its side"),
                world);
  }
  if (request.state == RequestState::failed && request.error != EMSGSIZE) {
    throw Error(ErrorCode::unavailable, text(describe(message), ": ", std::strerror(request.error)),
                world);
  }
  const bool exact = !message.sends && message.purpose.empty();
  if (request.state == RequestState::failed || (exact && request.bytes != message.bytes)) {
    throw Error(ErrorCode::mismatch,
                text(describe(message), ": the message has ",
                     request.state == RequestState::failed ? "more" : std::to_string(request.bytes),
                     " bytes, the receive ", message.bytes),
                world);
  }
}

void PointToPoint::withdraw(Message& message) noexcept {
  if (message.request.state == RequestState::posted) {
    const int world = membership_.world_ranks[message.peer];
    context_->messages(world).cancel(message.request);
  }
  context_->end_messages(1);
  recorder_.ended(message.entry, context_->wait_policy().now(), false);
}

std::string PointToPoint::describe(const Message& message) const {
  if (!message.purpose.empty()) {
    return message.purpose;
  }
  const std::string peer = message.peer == any_source ? "any rank" : text("rank ", message.peer);
  return text(message.sends ? "send to " : "recv from ", peer, " with tag ", message.tag, " on ",
              membership_.name);
}

std::string PointToPoint::under_way() const {
  const auto& oldest = in_flight_.empty() ? waiting_ : in_flight_;
  return oldest.empty() ? "" : describe(*oldest.front());
}

}  // namespace sprat::collectives
