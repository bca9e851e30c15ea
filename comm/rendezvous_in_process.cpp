// A job whose ranks are threads of one process: the hub and every rank share one control thread.
#include <memory>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/control_loop.hpp"
#include "comm/rendezvous_member.hpp"
#include "comm/timed_hub.hpp"

namespace sprat::comm {
namespace {

/// The hub and who listens to it. The loop's.
class Room final {
 public:
  Room(ControlLoop& loop, int size)
      : members_(size),
        hub_(std::make_shared<TimedHub>(
            loop.io(), size, std::vector<Term>{},
            [this](const std::vector<int>& to, const Frame& frame) { deliver(to, frame); })) {}
  ~Room() { hub_->stop(); }

  void enter(int rank, Member& member) {
    hub_->admit({rank, hub_->size(), {}}, "this process");
    members_[rank] = &member;
  }
  void leave(int rank) {
    members_[rank] = nullptr;
    hub_->ended(rank, "its thread left");
  }
  TimedHub& hub() { return *hub_; }

 private:
  void deliver(const std::vector<int>& to, const Frame& frame) {
    for (const int rank : to) {
      if (members_[rank] != nullptr) members_[rank]->received(frame);
    }
  }

  std::vector<Member*> members_;
  std::shared_ptr<TimedHub> hub_;
};

class InProcessUplink final : public Uplink {
 public:
  InProcessUplink(int rank, std::shared_ptr<ControlLoop> loop, std::shared_ptr<Room> room)
      : rank_(rank), loop_(std::move(loop)), room_(std::move(room)) {}

  /// Never from within a delivery: what a handler tells is posted.
  void send(const Frame& frame) override { room_->hub().received(rank_, frame); }
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
      member->attach(std::make_unique<InProcessUplink>(rank, loop, room));
      room->enter(rank, *member);
      ranks.push_back(std::move(member));
    }
  });
  return ranks;
}

}  // namespace sprat::comm
