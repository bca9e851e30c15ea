#include "tests/system/simulation/virtual_coordinator.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/coordinator/farewells.hpp"

namespace sprat::simulation {
namespace {

using namespace std::chrono_literals;
using comm::ControlMessage;

// As comm::ProcessWatch: a farewell may still be under way.
constexpr auto farewell_grace = 50ms;
// As comm::Member: beyond the deadline of an exchange.
constexpr auto coordinator_grace = 2s;

}  // namespace

VirtualCoordinator::VirtualCoordinator(Simulator& simulator, int ranks, bool processes)
    : simulator_(simulator),
      processes_(processes),
      coordinator_(ranks, {}),
      lines_(ranks),
      members_(ranks),
      watchers_(ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    coordinator_.admit({rank, ranks, {}}, "the simulation");
  }
}

std::unique_ptr<comm::Rendezvous> VirtualCoordinator::member(int rank) {
  auto member = std::make_unique<VirtualMember>(*this, simulator_, rank, coordinator_.size());
  members_[rank] = member.get();
  return member;
}

/// Usually a fraction of a millisecond, sometimes many; never before what was sent earlier.
Time VirtualCoordinator::arrival(Time& last) {
  Random& random = simulator_.random();
  const nanoseconds delay(random.once_in(20) ? random.below(20'000'000)
                                             : 2'000 + random.below(500'000));
  return last = std::max(last, simulator_.now() + delay);
}

void VirtualCoordinator::send(int rank, comm::Frame frame) {
  const auto arrives = [this, rank, frame = std::move(frame)] {
    if (alive_ && coordinator_.received(rank, frame, simulator_.now())) {
      settle();
    }
  };
  simulator_.at(processes_ ? 0 : rank, arrival(lines_[rank].to_coordinator), arrives);
}

void VirtualCoordinator::line_ended(int rank, const std::string& how) {
  // Of a dead rank too: the kernel tells.
  const Time when = arrival(lines_[rank].to_coordinator);
  simulator_.at(when, [this, rank, how] {
    simulator_.at(processes_ ? 0 : rank, simulator_.now(), [this, rank, how] {
      if (alive_) {
        coordinator_.ended(rank, how);
        settle();
      }
    });
  });
}

void VirtualCoordinator::settle() {
  for (const auto& output : coordinator_.take()) {
    for (const int rank : output.to) {
      deliver(rank, [frame = output.frame](VirtualMember& member) { member.received(frame); });
    }
  }
  const auto deadline = coordinator_.deadline();
  if (deadline && (!tick_ || *deadline < *tick_)) {
    tick_ = deadline;
    simulator_.at(0, *deadline, [this] {
      tick_.reset();
      if (alive_) {
        coordinator_.tick(simulator_.now());
        settle();
      }
    });
  }
}

void VirtualCoordinator::deliver(int rank, std::function<void(VirtualMember&)> action) {
  simulator_.at(rank, arrival(lines_[rank].to_rank), [this, rank, action = std::move(action)] {
    if (members_[rank] != nullptr) {
      action(*members_[rank]);
    }
  });
}

void VirtualCoordinator::process_ended(int rank) {
  members_[rank] = nullptr;
  if (!processes_) {
    return;
  }
  for (const int watcher : watchers_[rank]) {
    const nanoseconds noticed(simulator_.random().below(5'000'000));
    simulator_.at(watcher, simulator_.now() + noticed, [this, watcher, rank] {
      simulator_.at(watcher, simulator_.now() + farewell_grace, [this, watcher, rank] {
        if (members_[watcher] != nullptr) {
          members_[watcher]->peer_ended(rank);
        }
      });
    });
  }
  if (rank == 0) {
    coordinator_ends();
  } else {
    line_ended(rank, "its connection ended");
  }
}

void VirtualCoordinator::coordinator_ends() {
  alive_ = false;
  for (int rank = 1; rank < coordinator_.size(); ++rank) {
    deliver(rank, [](VirtualMember& member) {
      member.coordinator_ended("its connection to this rank ended");
    });
  }
}

VirtualMember::VirtualMember(VirtualCoordinator& coordinator, Simulator& simulator, int rank,
                             int size)
    : coordinator_(coordinator),
      simulator_(simulator),
      rank_(rank),
      standing_(size, Standing::present) {
  simulator_.serve(rank_, [this] { control_task(); });
}

void VirtualMember::say_farewell() noexcept {
  if (!job_failed_ && !std::exchange(said_farewell_, true)) {
    ControlMessage farewell;
    farewell.kind = ControlMessage::Kind::farewell;
    farewell.rank = rank_;
    coordinator_.send(rank_, farewell);
  }
}

VirtualMember::~VirtualMember() {
  closing_ = true;
  simulator_.wait_for([this] { return control_ended_; });
  say_farewell();
  if (rank_ == 0 && coordinator_.processes_) {
    // The coordinator lingers, so that the others' farewells are heard, as
    // comm::ControlServer::close().
    const Time patience = simulator_.now() + 1s;
    simulator_.at(patience, [] {});
    simulator_.wait_for([this, patience] {
      return simulator_.now() >= patience || coordinator_.coordinator_.alone(0);
    });
    coordinator_.coordinator_.finish();
    coordinator_.settle();
  }
  coordinator_.members_[rank_] = nullptr;
  if (!coordinator_.processes_) {
    coordinator_.line_ended(rank_, "its thread left");
  }
}

std::vector<comm::Blob> VirtualMember::exchange(comm::Blob mine, std::string_view purpose,
                                                Time deadline) {
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - simulator_.now());
  if (!failure_) {
    coordinator_.send(rank_, comm::Part{++exchanges_, static_cast<std::uint64_t>(patience.count()),
                                        std::string(purpose), std::move(mine)});
    const Time end = deadline + coordinator_grace;
    simulator_.at(end, [] {});
    simulator_.wait_for([this, end] { return parts_ || failure_ || simulator_.now() >= end; });
  }
  if (failure_) {
    throw Error(failure_->code(), text(purpose, ": ", failure_->what()), failure_->rank());
  }
  if (!parts_) {
    throw Error(ErrorCode::timeout, text(purpose, ": the hub beside rank 0 did not answer"), 0);
  }
  return std::exchange(parts_, std::nullopt)->blobs;
}

void VirtualMember::listen(std::function<void(const ControlMessage&)> handler) {
  handler_ = std::move(handler);
}

void VirtualMember::tell(ControlMessage message) noexcept {
  if (message.kind == ControlMessage::Kind::failed) {
    note_failure(message);
  }
  if (!coordinator_gone_) {
    coordinator_.send(rank_, std::move(message));
  }
}

void VirtualMember::watch(int rank, pid_t) { coordinator_.watchers_[rank].push_back(rank_); }

void VirtualMember::received(comm::Frame frame) {
  if (auto* parts = std::get_if<comm::Parts>(&frame)) {
    parts_ = std::move(*parts);
  } else if (auto* message = std::get_if<ControlMessage>(&frame)) {
    if (message->kind != ControlMessage::Kind::farewell) {
      return take(std::move(*message));
    }
    for (const int rank : comm::departing(*message, size())) {
      if (rank != rank_) {
        take(comm::farewell_of({rank}));
      }
    }
  }
}

void VirtualMember::coordinator_ended(const std::string& how) {
  coordinator_gone_ = true;
  ControlMessage message;
  message.kind = ControlMessage::Kind::lost;
  message.rank = 0;
  message.code = static_cast<int>(ErrorCode::lost_peer);
  message.text = how;
  take(std::move(message));
}

void VirtualMember::peer_ended(int rank) {
  if (standing_[rank] != Standing::present) {
    return;
  }
  ControlMessage message;
  message.rank = rank;
  message.code = static_cast<int>(ErrorCode::lost_peer);
  message.text = "its process ended";
  message.kind = coordinator_gone_ && standing_[0] == Standing::left
                     ? ControlMessage::Kind::farewell
                     : ControlMessage::Kind::lost;
  if (message.kind == ControlMessage::Kind::lost && !coordinator_gone_) {
    coordinator_.send(rank_, message);
  }
  take(std::move(message));
}

void VirtualMember::take(ControlMessage message) {
  using Kind = ControlMessage::Kind;
  if (message.kind == Kind::lost || message.kind == Kind::farewell) {
    if (standing_[message.rank] != Standing::present) {
      return;
    }
    standing_[message.rank] = message.kind == Kind::lost ? Standing::lost : Standing::left;
  }
  if (message.kind == Kind::lost || message.kind == Kind::failed) {
    note_failure(message);
  }
  inbox_.push_back(std::move(message));
}

void VirtualMember::note_failure(const ControlMessage& message) {
  const bool is_loss = message.kind == ControlMessage::Kind::lost;
  job_failed_ |= !is_loss || message.rank == 0 || !handler_;
  if (!failure_) {
    const std::string lost = is_loss ? text("lost rank ", message.rank, ": ") : std::string();
    failure_.emplace(static_cast<ErrorCode>(message.code), lost + message.text, message.rank);
  }
}

void VirtualMember::control_task() {
  for (;;) {
    simulator_.wait_for([this] { return closing_ || (handler_ && !inbox_.empty()); });
    if (closing_) {
      break;
    }
    const ControlMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    handler_(message);
  }
  control_ended_ = true;
}

}  // namespace sprat::simulation
