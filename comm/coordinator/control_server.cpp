#include "comm/coordinator/control_server.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/fork.hpp"
#include "comm/base/log.hpp"
#include "comm/coordinator/pending_connection.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;

/// How many connections may be open that have not joined, beyond one for each rank. More wait in
/// the system's queue, so strangers cannot use up this process's descriptors.
constexpr std::size_t spare_pending_connections = 256;
/// The coordinator stays this long for ranks that leave later than rank 0, so that their farewells
/// are heard and nobody takes them for lost.
constexpr auto linger = 1000ms;
/// The other side of a finished connection has this long to close it.
constexpr auto drain = 2000ms;

std::shared_ptr<const TlsContext> encryption_for(const ControlServer::Admission& admission) {
  if (admission.encryption == Encryption::off) {
    return nullptr;
  }
  return TlsContext::make({.key = job_key(admission.token, KeyUse::control)});
}

}  // namespace

ControlServer::ControlServer(ControlLoop& loop, Listening listening, Admission admission,
                             const Hello& own, Coordinator::Quorum quorum)
    : loop_(loop),
      acceptor_(std::move(listening.acceptor)),
      accept_timer_(loop.io()),
      admission_(std::move(admission)),
      encryption_(encryption_for(admission_)),
      coordinator_(std::make_shared<TimedCoordinator>(
          loop.io(), own.size, own.terms,
          [this](const std::vector<int>& to, const Frame& frame) { deliver(to, frame); }, quorum)),
      seats_(own.size),
      own_rank_(own.rank) {
  coordinator_->on_renumbering([this](const std::vector<int>& kept) { renumber(kept); });
}

std::shared_ptr<ControlServer> ControlServer::start(ControlLoop& loop, Listening listening,
                                                    Admission admission, const Hello& own,
                                                    Coordinator::Quorum quorum) {
  std::shared_ptr<ControlServer> server(
      new ControlServer(loop, std::move(listening), std::move(admission), own, quorum));
  loop.post([server] { server->accept(); });
  return server;
}

void ControlServer::accept() {
  acceptor_.async_wait(
      asio::socket_base::wait_read, [weak = weak_from_this()](const error_code& error) {
        const auto self = weak.lock();
        if (error || !self || !self->acceptor_.is_open()) {
          return;
        }
        try {
          self->take_next() ? self->accept() : self->accept_later();
        } catch (const std::exception& failure) {
          // Its socket is closed by now, and its rank comes again. Who waits behind it is not
          // forgotten: what this one lacked may be there by then.
          self->accept_later();
          self->ran_short(
              text(failure.what(), " (see sysctl fs.epoll.max_user_watches, and free memory)"));
        }
      });
}

/// The connection that has waited longest, if any. False: the next look is after a pause.
bool ControlServer::take_next() {
  // The size is looked at before accept(): what is not accepted costs this process nothing.
  if (pending_.size() >= seats_.size() + spare_pending_connections) {
    return false;
  }
  Accepted accepted = accept_one(io(), acceptor_);
  // Without descriptors the connection stays in the system's queue, and epoll would report it again
  // at once.
  if (accepted.retry_later) {
    ran_short("no descriptor is left here (see ulimit -n)");
    return false;
  }
  if (accepted.socket) {
    const auto pending = std::make_shared<PendingConnection>(
        weak_from_this(), std::move(*accepted.socket), accepted.from);
    // Before it takes a place, which one that did not start would never leave.
    pending->start();
    pending_.insert(pending);
  }
  return true;
}

/// Once, since every attempt finds the same.
void ControlServer::ran_short(std::string_view what) {
  if (!std::exchange(short_, true)) {
    log().warn("a connection cannot be taken: {}", what);
    coordinator_->turned_away(text("a connection: ", what));
  }
}

void ControlServer::accept_later() {
  accept_timer_.expires_after(50ms);
  accept_timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (!error && self && self->acceptor_.is_open()) {
      self->accept();
    }
  });
}

void ControlServer::turned_away(const std::shared_ptr<PendingConnection>& pending,
                                std::string note) {
  log().info("{} {}", pending->from(), note);
  coordinator_->turned_away(text(pending->from(), ": ", note));
}

/// Known of it is where it was. Whoever has the token can do so again and again, so it is said
/// once; the error at the deadline says it of all, up to a bound.
void ControlServer::went_unnamed(const PendingConnection& pending, std::string_view how) {
  if (!std::exchange(went_, true)) {
    log().warn("a rank at {} went before it had said which one it is ({})", pending.from(), how);
  }
  coordinator_->went_unnamed(pending.from(), how);
}

void ControlServer::enters(const std::shared_ptr<PendingConnection>& pending, const Hello& said) {
  const Hello hello = coordinator_->numbered(said);
  const Objection& objection = pending->objection();
  if (objection.text.empty()) {
    if (objection.elsewhere && !std::exchange(warned_, true)) {
      log().warn(
          "rank {} joins from {} without a secret, and so may anyone who reaches this port; "
          "SPRAT_TOKEN on every rank, or mpirun, would prevent that",
          hello.rank, pending->from());
    }
    return let_in(pending, hello);
  }
  // A stranger may claim to be any rank, so its refusal ends only its own connection.
  turned_away(pending, objection.text);
  pending->refuse(Refusal{static_cast<int>(ErrorCode::unavailable), hello.rank,
                          text("the hub turned rank ", hello.rank, " away: ", objection.text)});
}

void ControlServer::let_in(const std::shared_ptr<PendingConnection>& pending, const Hello& hello) {
  // Without an answer, so that it tries again until somebody serves the next shrink.
  if (coordinator_->awaits_next_shrink(hello)) {
    pending->close();
    return dismiss(pending);
  }
  if (const auto refusal = coordinator_->admit(hello, pending->from())) {
    log().info("refused {}: {}", pending->from(), refusal->text);
    pending->refuse(*refusal);
    check_wait();
    return;
  }
  seat(hello.rank, pending->release());
  seats_[hello.rank]->beat();
  dismiss(pending);
}

void ControlServer::adopt(StreamSocket socket, const Hello& own) {
  coordinator_->admit(own, "this process");
  seat(own.rank, ControlConnection::start(std::move(socket), max_frame_bytes, {}));
}

ControlConnection::Events ControlServer::events_of(int rank) {
  ControlConnection::Events events;
  events.received = [this, rank](Frame frame) { received(rank, std::move(frame)); };
  events.ended = [this, rank](std::string_view how) { ended(rank, how); };
  events.silent = [rank](std::chrono::seconds silence) {
    log().warn("rank {} has not answered for {} s, though its host does; is it stopped?", rank,
               silence.count());
  };
  return events;
}

/// A rank that is not kept has received the testimonies, from which it computes that itself, and
/// ends its connection.
void ControlServer::renumber(const std::vector<int>& kept) {
  std::vector<std::shared_ptr<ControlConnection>> seats;
  for (const int old : kept) {
    if (old == own_rank_) {
      own_rank_ = static_cast<int>(seats.size());
    }
    if (seats_[old]) {
      seats_[old]->hand_over(max_frame_bytes, events_of(static_cast<int>(seats.size())));
    }
    seats.push_back(std::move(seats_[old]));
  }
  for (const auto& left_out : seats_) {
    if (!left_out) {
      continue;
    }
    // Its number means somebody else now, so nothing that it still says may count.
    left_out->hand_over(max_frame_bytes, {[](Frame) {}, nullptr});
    left_out->finish();
  }
  seats_ = std::move(seats);
}

void ControlServer::seat(int rank, std::shared_ptr<ControlConnection> connection) {
  connection->hand_over(max_frame_bytes, events_of(rank));
  seats_[rank] = std::move(connection);
  seats_[rank]->send(std::make_shared<const Blob>(encode(Welcome{rank, coordinator_->size()})));
}

void ControlServer::received(int rank, Frame frame) {
  if (!coordinator_->received(rank, std::move(frame))) {
    const auto connection = seats_[rank];  // ended() takes it from its seat
    ended(rank, "it sent what only the hub says");
    connection->close();
  }
  check_wait();
}

void ControlServer::ended(int rank, std::string_view how) {
  seats_[rank].reset();
  coordinator_->ended(rank, how);
  check_wait();
}

void ControlServer::deliver(const std::vector<int>& to, const Frame& frame) {
  if (const auto* message = std::get_if<ControlMessage>(&frame)) {
    failed_ = failed_ || message->kind == ControlMessage::Kind::lost ||
              message->kind == ControlMessage::Kind::failed;
  }
  // Encoded once, however many ranks it goes to.
  const auto bytes = std::make_shared<const Blob>(encode(frame));
  for (const int rank : to) {
    if (const auto connection = seats_[rank]) {
      connection->send(bytes);
    }
  }
}

void ControlServer::wait(std::function<bool()> condition, std::chrono::milliseconds limit) {
  std::future<void> holds;
  loop_.run([&] {
    condition_holds_ = {};
    holds = condition_holds_.get_future();
    condition_ = std::move(condition);
    check_wait();
  });
  holds.wait_for(limit);
  loop_.run([&] { condition_ = nullptr; });
}

void ControlServer::check_wait() {
  if (!condition_ || !condition_()) {
    return;
  }
  condition_ = nullptr;
  condition_holds_.set_value();
}

void ControlServer::dismiss(const std::shared_ptr<PendingConnection>& pending) {
  pending_.erase(pending);
  check_wait();
}

/// Those that have been refused stay for a while, since they may still have to read why.
void ControlServer::stop_accepting() {
  if (acceptor_.is_open()) {
    // Not acceptor_.close(): epoll would go on to report a socket that another descriptor holds.
    error_code ignored;
    close_and_forget(acceptor_.release(ignored));
  }
  accept_timer_.cancel();
  for (const auto& pending : std::vector(pending_.begin(), pending_.end())) {
    if (pending->refused()) {
      continue;
    }
    pending->close();
    pending_.erase(pending);
  }
}

void ControlServer::close() noexcept {
  wait(
      [this] {
        // After a failure the server stays for ranks that come late, so that they hear why; else
        // for those that leave late.
        return failed_ ? coordinator_->everyone_has_come() : coordinator_->alone(own_rank_);
      },
      linger);
  loop_.run([this] {
    stop_accepting();
    // Before the connections end: who has not heard that a rank left takes it for lost, and who
    // cannot read what a rank of its host shared could not say so any more.
    coordinator_->finish();
    for (const auto& connection : std::vector(seats_)) {
      if (connection) {
        connection->finish();
      }
    }
  });
  const auto is_seated = [](const auto& connection) { return connection != nullptr; };
  wait([&] { return pending_.empty() && std::ranges::none_of(seats_, is_seated); }, drain);
  loop_.run([this] {
    coordinator_->stop();
    for (const auto& pending : pending_) {
      pending->close();
    }
    pending_.clear();
    for (const auto& connection : seats_) {
      if (connection) {
        connection->close();
      }
    }
  });
}

}  // namespace sprat::comm
