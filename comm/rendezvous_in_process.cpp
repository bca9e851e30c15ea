// A job whose ranks are threads of one process: the hub and every rank share one control thread.
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/control_hub.hpp"
#include "comm/control_loop.hpp"
#include "comm/rendezvous_member.hpp"

namespace sprat::comm {
namespace {

/// The hub and who listens to it. The loop's.
class Exchange final : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(ControlLoop& loop, int size) : hub_(size, {}), timer_(loop.io()), members_(size) {}

  void add(int rank, Member& member) {
    hub_.admit({rank, static_cast<int>(members_.size()), {}}, "this process");
    members_[rank] = &member;
  }
  void received(int rank, Frame frame) {
    hub_.received(rank, std::move(frame), std::chrono::steady_clock::now());
    deliver();
  }
  void remove(int rank) {
    members_[rank] = nullptr;
    hub_.ended(rank, "its thread left");
    deliver();
  }

 private:
  void deliver() {
    for (auto& [to, frame] : hub_.take()) {
      for (const int rank : to) {
        if (members_[rank] != nullptr) members_[rank]->received(frame);
      }
    }
    if (const auto deadline = hub_.deadline()) {
      timer_.expires_at(*deadline);
      timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
        const auto self = weak.lock();
        if (error || !self) return;
        self->hub_.tick(std::chrono::steady_clock::now());
        self->deliver();
      });
    }
  }

  Hub hub_;
  boost::asio::steady_timer timer_;
  std::vector<Member*> members_;
};

class InProcessUplink final : public Uplink {
 public:
  InProcessUplink(int rank, std::shared_ptr<ControlLoop> loop, std::shared_ptr<Exchange> exchange)
      : rank_(rank), loop_(std::move(loop)), exchange_(std::move(exchange)) {}

  /// Never from within a delivery: what a handler tells is posted.
  void send(const Frame& frame) override { exchange_->received(rank_, frame); }
  void close() noexcept override {
    loop_->run([this] { exchange_->remove(rank_); });
  }

 private:
  const int rank_;
  const std::shared_ptr<ControlLoop> loop_;
  const std::shared_ptr<Exchange> exchange_;  ///< Shared by the ranks; the last one ends it.
};

}  // namespace

std::vector<std::unique_ptr<Rendezvous>> open_rendezvous_in_process(int size) {
  require(size > 0, "a job of ", size, " ranks; there must be at least one");
  auto loop = std::make_shared<ControlLoop>();
  auto exchange = std::make_shared<Exchange>(*loop, size);
  std::vector<std::unique_ptr<Rendezvous>> ranks;
  loop->run([&] {
    for (int rank = 0; rank < size; ++rank) {
      auto member = std::make_unique<Member>(rank, size, loop);
      member->attach(std::make_unique<InProcessUplink>(rank, loop, exchange));
      exchange->add(rank, *member);
      ranks.push_back(std::move(member));
    }
  });
  return ranks;
}

}  // namespace sprat::comm
