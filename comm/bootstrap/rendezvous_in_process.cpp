// A job whose ranks are threads of one process: the coordinator and every rank share one control
// thread.
#include <memory>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/coordinator/control_loop.hpp"
#include "comm/coordinator/rendezvous_member.hpp"
#include "comm/coordinator/timed_coordinator.hpp"

namespace sprat::comm {
namespace {

/// The coordinator and who listens to it. The loop's.
class Room final {
 public:
  Room(ControlLoop& loop, int size)
      : members_(size),
        coordinator_(std::make_shared<TimedCoordinator>(
            loop.io(), size, std::vector<Term>{},
            [this](const std::vector<int>& to, const Frame& frame) { deliver(to, frame); })) {}
  ~Room() { coordinator_->stop(); }

  void enter(int rank, Member& member) {
    coordinator_->admit({rank, coordinator_->size(), {}}, "this process");
    members_[rank] = &member;
  }
  void leave(int rank) {
    members_[rank] = nullptr;
    coordinator_->ended(rank, "its thread left");
  }
  TimedCoordinator& coordinator() { return *coordinator_; }

 private:
  void deliver(const std::vector<int>& to, const Frame& frame) {
    for (const int rank : to) {
      if (members_[rank] != nullptr) {
        members_[rank]->received(frame);
      }
    }
  }

  std::vector<Member*> members_;
  std::shared_ptr<TimedCoordinator> coordinator_;
};

class InProcessCoordinatorClient final : public CoordinatorClient {
 public:
  InProcessCoordinatorClient(int rank, std::shared_ptr<ControlLoop> loop,
                             std::shared_ptr<Room> room)
      : rank_(rank), loop_(std::move(loop)), room_(std::move(room)) {}

  /// The coordinator is called directly, by a member that answers a frame also while it delivers
  /// that: what it has said is taken out of it before. What a handler tells is posted to the loop.
  void send(const Frame& frame) override { room_->coordinator().received(rank_, frame); }
  void close() noexcept override {
    loop_->run([this] { room_->leave(rank_); });
  }

 private:
  const int rank_;
  const std::shared_ptr<ControlLoop> loop_;
  const std::shared_ptr<Room> room_;  ///< Shared by the ranks; the last one ends it.
};

}  // namespace

std::vector<std::unique_ptr<Rendezvous>> open_rendezvous_in_process(int size) {
  require(size > 0, "a job of ", size, " ranks; there must be at least one");
  auto loop = std::make_shared<ControlLoop>();
  std::vector<std::unique_ptr<Rendezvous>> ranks;
  loop->run([&] {
    auto room = std::make_shared<Room>(*loop, size);
    for (int rank = 0; rank < size; ++rank) {
      auto member = std::make_unique<Member>(rank, size, loop);
      member->attach(std::make_unique<InProcessCoordinatorClient>(rank, loop, room));
      room->enter(rank, *member);
      ranks.push_back(std::move(member));
    }
  });
  return ranks;
}

}  // namespace sprat::comm
