// A wire that fails for a moment, and what the executor keeps of it.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "comm/context/context.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/collectives/engine/ranks_on_hosts.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;
using RequestState = comm::MessageRequest::State;

/// The machine's wait policy with a clock that a test sets forward.
class WaitPolicyAhead final : public comm::WaitPolicy {
 public:
  explicit WaitPolicyAhead(const std::atomic<int>& seconds) : seconds_(seconds) {}
  comm::Clock::time_point now() noexcept override {
    return policy_->now() + std::chrono::seconds(seconds_.load());
  }
  comm::Clock::time_point recent() noexcept override { return now(); }
  bool rest(int idle_rounds, comm::Awaited awaited) noexcept override {
    return policy_->rest(idle_rounds, awaited);
  }
  void yield() noexcept override { policy_->yield(); }
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected,
             std::chrono::nanoseconds timeout) noexcept override {
    policy_->sleep(word, expected, timeout);
  }
  void wake(std::atomic<std::uint32_t>& word, int owner) noexcept override {
    policy_->wake(word, owner);
  }
  void poll(std::span<pollfd> descriptors, std::chrono::nanoseconds timeout) noexcept override {
    policy_->poll(descriptors, timeout);
  }
  void lock(std::mutex& mutex) noexcept override { policy_->lock(mutex); }
  void point() noexcept override { policy_->point(); }

 private:
  const std::atomic<int>& seconds_;
  std::unique_ptr<comm::WaitPolicy> policy_ = comm::real_wait_policy();
};

/// What lies between the two hosts: whole messages, copied.
struct Mail {
  struct Letter {
    int to;
    std::uint64_t tag;
    std::vector<std::byte> data;
  };
  std::mutex mutex;  ///< Guards the rest.
  std::list<Letter> letters;
};

/// Its first receive shows an error for a round, and arrives all the same.
class PassingFailure final : public comm::MessageTransport {
 public:
  PassingFailure(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
  const char* name() const override { return "passing failure"; }
  comm::Blob address() override { return {}; }
  void connect(std::span<const comm::Blob>) override {}
  void send(comm::MessageRequest& request, int peer, std::uint64_t tag,
            std::span<const std::byte> data) override {
    const std::lock_guard lock(mail_.mutex);
    mail_.letters.push_back({peer, tag, {data.begin(), data.end()}});
    request.state = RequestState::done;
  }
  void recv(comm::MessageRequest& request, int, std::uint64_t tag,
            std::span<std::byte> data) override {
    request.state = failed_before_ ? RequestState::posted : RequestState::failed;
    request.error = ECONNRESET;
    failed_before_ = true;
    receives_.push_back({&request, tag, data});
  }
  std::optional<std::size_t> probe(int, std::uint64_t) noexcept override { return std::nullopt; }
  bool progress() noexcept override {
    const std::lock_guard lock(mail_.mutex);
    return std::erase_if(receives_, [this](const Receive& receive) { return arrives(receive); }) >
           0;
  }
  comm::NewsDescriptors* news() noexcept override { return nullptr; }
  void cancel(comm::MessageRequest& request) noexcept override {
    std::erase_if(receives_, [&](const Receive& one) { return one.request == &request; });
    request.state = RequestState::failed;
  }

 private:
  struct Receive {
    comm::MessageRequest* request;
    std::uint64_t tag;
    std::span<std::byte> target;
  };
  bool arrives(const Receive& receive) {
    const auto found = std::ranges::find_if(mail_.letters, [&](const Mail::Letter& letter) {
      return letter.to == rank_ && letter.tag == receive.tag;
    });
    if (found == mail_.letters.end()) {
      return false;
    }
    std::ranges::copy(found->data, receive.target.begin());
    receive.request->bytes = found->data.size();
    receive.request->state = RequestState::done;
    mail_.letters.erase(found);
    return true;
  }

  Mail& mail_;
  const int rank_;
  bool failed_before_ = false;
  std::list<Receive> receives_;
};

/// Two ranks on two hosts.
void run_pair_ahead(Mail& mail, const std::atomic<int>& seconds_ahead,
                    const std::function<void(Communicator&)>& body) {
  const auto prepare = [&](int, Config&, comm::Environment& environment) {
    environment.wait_policy = std::make_unique<WaitPolicyAhead>(seconds_ahead);
    environment.wires = [&](const Config&, int from, int) {
      return std::make_unique<PassingFailure>(mail, from);
    };
  };
  run_on_hosts("a,b", 2, prepare, body);
}

TEST(WireFailure, that_has_passed_with_its_operation_does_not_end_a_later_one_that_waits) {
  Mail mail;
  std::atomic<int> seconds_ahead = 0;
  std::atomic<bool> waited = false;
  run_pair_ahead(mail, seconds_ahead, [&](Communicator& world) {
    std::vector<std::int32_t> data(4, world.rank() + 1);
    world.all_reduce(elements(data)).wait();
    EXPECT_EQ(data[3], 3);
    if (world.rank() == 0) {
      seconds_ahead = 100;
      Work work = world.all_reduce(elements(data));
      seconds_ahead = 110;
      const auto& impl = world.impl();
      const std::uint64_t id = impl.executor.membership().id;
      // The coordinator says who is late when somebody has looked at the call that waits.
      while (impl.context->lateness(id, 1).late.empty()) {
        if (work.test()) {
          break;
        }
      }
      waited = true;
      work.wait();
    } else {
      while (!waited && !world.failure()) {
        world.impl().context->drive_once();
      }
      world.all_reduce(elements(data)).wait();
    }
    EXPECT_EQ(data[3], 6);
  });
}

}  // namespace
}  // namespace sprat::collectives
