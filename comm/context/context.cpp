#include "comm/context/context.hpp"

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::comm {

Context::~Context() {
  progress_.stop();
  reachability_.stop();
  // No control message arrives from here on. One that is being handled may still tell: the pointer
  // stays until the rendezvous is gone, which reset() would clear first.
  delete rendezvous_.get();
  static_cast<void>(rendezvous_.release());
}

void Context::require_here() const {
  need(here(), "this process was forked by rank ", rank_,
       ", whose communicators are not usable here; join a job of its own after fork()");
}

std::vector<int> Context::hosts() const {
  std::vector<int> hosts;
  for (const Peer& peer : peers_) {
    hosts.push_back(peer.host_index);
  }
  return hosts;
}

std::string Context::describe_peer(int rank) const {
  const Peer& peer = peers_[rank];
  return memory_.in_process() ? text("rank ", rank)
                              : text("rank ", rank, " (", peer.host, ", pid ", peer.pid, ")");
}

void Context::drive_until(const std::function<bool()>& done) {
  require_here();
  progress_.drive_until(done);
}

void Context::remove(Driver* driver) {
  const auto token = take_token();
  progress_.drivers().remove(driver);
}

void Context::note_freed(std::uint64_t communicator, std::uint64_t calls) {
  const auto token = take_token();
  progress_.drivers().note_freed(communicator, calls);
}

void Context::fail(const Error& error) noexcept {
  if (failure() != nullptr || !failure_.set(error)) {
    return;
  }
  ControlMessage message;
  message.kind = ControlMessage::Kind::failed;
  message.rank = error.rank();
  message.code = static_cast<int>(error.code());
  message.text = error.what();
  rendezvous_->tell(std::move(message));
  failure_.start_record();
}

// Others know it already: nobody is told.
void Context::learn_failure(const Error& error) noexcept {
  if (failure_.set(error)) {
    failure_.start_record();
  }
}

void Context::quiesce() {
  if (failure() == nullptr) {
    return;  // one operation failed, such as a message whose communicator is gone, and not the job
  }
  for (Context* sibling : siblings_) {
    if (sibling != this) {
      sibling->learn_failure(*failure());
      // Whoever drives the sibling sees the failure before its next step.
      const auto token = sibling->take_token();
    }
  }
}

void Context::report_stall(std::uint64_t communicator, std::uint64_t sequence, Blob signature) {
  ControlMessage message;
  message.kind = ControlMessage::Kind::stalled;
  message.rank = rank_;
  message.comm = communicator;
  message.sequence = sequence;
  message.payload = std::move(signature);
  rendezvous_->tell(std::move(message));
}

void Context::on_failure(std::function<void()> leave) {
  failure_.on_failure([this, leave = std::move(leave)] {
    status_->fail(failure()->what());
    leave();
  });
}

void Context::look_for(const std::vector<int>& ranks) {
  if (!survivor_listener_) {
    return;
  }
  std::vector<ReachabilityCheck::Target> targets;
  for (const int rank : ranks) {
    targets.push_back({rank, survivor_listener_->addresses_of(numbers_[rank])});
  }
  reachability_.start(
      std::move(targets), [this] { return failure() != nullptr; },
      [this](int rank) {
        fail(Error(ErrorCode::lost_peer,
                   text(describe_peer(rank_), " cannot reach ", describe_peer(rank),
                        ": nothing has come from it, and its host takes no connection"),
                   rank));
      });
}

// Said here too, not only thrown: a launcher may end this process before anyone catches.
void Context::learn_loss(const std::string& what, int rank) {
  const std::string during = progress_.operation_under_way();
  learn_failure(Error(ErrorCode::lost_peer, what, rank));
  log().failure(what,
                text(" during ", during,
                     config_.flight_recorder.empty()
                         ? "; SPRAT_FLIGHT_RECORDER=DIR keeps the last operations of each rank"
                         : ""));
}

void Context::on_control(const ControlMessage& message) {
  using Kind = ControlMessage::Kind;
  switch (message.kind) {
    case Kind::lost: {
      failure_.note_lost(message.rank);
      if (failure() == nullptr && message.rank != rank_) {
        learn_loss(text("lost ", describe_peer(message.rank), ": ", message.text), message.rank);
      }
      return;
    }
    case Kind::failed:
      if (static_cast<ErrorCode>(message.code) == ErrorCode::lost_peer && failure() == nullptr) {
        learn_loss(message.text, message.rank);
      } else {
        learn_failure(Error(static_cast<ErrorCode>(message.code), message.text, message.rank));
      }
      return;
    case Kind::query:
      answer(message);
      return;
    case Kind::verdict:
      if (static_cast<ErrorCode>(message.code) == ErrorCode::mismatch) {
        learn_failure(Error(ErrorCode::mismatch, message.text, message.rank));
      } else {
        failure_.note_lateness(message.comm, message.sequence, decode_lateness(message.payload));
      }
      return;
    case Kind::farewell:
      failure_.note_departed(message.rank);
      ring_self();  // somebody may wait for a message to it
      return;
    case Kind::stalled:
    case Kind::answer:
      return;
  }
}

void Context::answer(const ControlMessage& query) {
  ControlMessage reply = query;
  reply.kind = ControlMessage::Kind::answer;
  reply.rank = rank_;
  {
    const auto token = take_token();
    Recall recalled = progress_.drivers().recall(query.comm, query.sequence);
    reply.code = static_cast<int>(recalled.state);
    reply.payload = std::move(recalled.words);
  }
  if (failure() != nullptr) {  // what is called after a failure is no disagreement
    reply.code = static_cast<int>(Recall::State::forgotten);
    reply.payload.clear();
  }
  rendezvous_->tell(std::move(reply));
}

std::shared_ptr<Context> Context::shrink(std::size_t world_bytes, int at_least,
                                         std::chrono::milliseconds patience) {
  need(survivor_listener_ != nullptr,
       "ranks that are threads of one process live and die together: their job ",
       "does not shrink");
  require(survivor_listener_->members() == numbers_,
          "this job has shrunk already; use the communicator that shrink() returned");
  require(at_least >= 1 && at_least <= size(), "at_least is ", at_least, "; it must be 1 to ",
          size());
  // What is still under way here never ends otherwise: not everybody may be left to do their part.
  fail(Error(ErrorCode::aborted, text(describe_peer(rank_), " shrinks the job"), rank_));
  const auto deadline = wait_policy_->now() + patience;
  for (;;) {
    for (int rank = 0; rank < size(); ++rank) {
      if (failure_.lost(rank)) {
        survivor_listener_->mourn(numbers_[rank]);
      }
    }
    SurvivorListener::Gathered gathered = survivor_listener_->gather(at_least, deadline);
    try {
      auto smaller = join(
          config_,
          {.rendezvous = std::move(gathered.rendezvous), .survivor_listener = survivor_listener_},
          world_bytes);
      survivor_listener_->commit(gathered.numbers);
      smaller->numbers_ = std::move(gathered.numbers);
      return smaller;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::lost_peer || wait_policy_->now() > deadline) {
        throw;
      }
      log().info("shrinking again: {}", error.what());
    }
  }
}

void Context::cannot_join(Rendezvous& rendezvous, std::string_view why) noexcept {
  ControlMessage message;
  message.kind = ControlMessage::Kind::failed;
  message.rank = rendezvous.rank();
  message.code = static_cast<int>(ErrorCode::lost_peer);
  try {
    message.text = text("rank ", message.rank, " cannot join: ", why);
  } catch (const std::bad_alloc&) {
    message.text.clear();  // they hear at least who it is
  }
  rendezvous.tell(std::move(message));
}

}  // namespace sprat::comm
