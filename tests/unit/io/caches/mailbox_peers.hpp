// Hosts of one process that share blocks: mailboxes in memory, and what may go wrong with a host.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/caches/block_peers.hpp"

namespace sprat::io {

enum class PeerFault {
  none,
  stalled,  ///< Takes messages, and its own never leave it.
  gone,     ///< Cannot be reached.
  changes_bits,
  mixes_up,  ///< Answers with other blocks' bytes, rightly checked.
  cuts_short,
  repeats,  ///< Sends everything twice.
};

/// What the hosts have in common.
struct Mailboxes {
  explicit Mailboxes(int count) : boxes(static_cast<std::size_t>(count)) {
    for (int host = 0; host < count; ++host) {
      names.push_back("host" + std::to_string(host));
      faults.push_back(PeerFault::none);
      woken.push_back(false);
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> names;
  std::vector<std::vector<ReceivedBlock>> boxes;
  std::vector<PeerFault> faults;
  std::vector<bool> woken;
};

class MailboxPeers final : public BlockPeers {
 public:
  MailboxPeers(std::shared_ptr<Mailboxes> shared, std::size_t here)
      : shared_(std::move(shared)), here_(here) {}

  std::span<const std::string> hosts() const override { return shared_->names; }
  std::size_t here() const override { return here_; }

  bool send(std::size_t to, const PeerHeader& header, std::span<const std::byte> body,
            std::shared_ptr<const void>) override {
    const std::lock_guard lock(shared_->mutex);
    const PeerFault fault = shared_->faults[here_];
    if (fault == PeerFault::gone || shared_->faults[to] == PeerFault::gone) {
      return false;
    }
    if (fault == PeerFault::stalled) {
      return true;
    }
    ReceivedBlock message{
        .from = here_, .header = header, .body = std::vector<std::byte>(body.begin(), body.end())};
    if (fault == PeerFault::changes_bits && !message.body.empty()) {
      message.body[message.body.size() / 2] ^= std::byte{1};
    }
    if (fault == PeerFault::mixes_up) {
      ++message.header.key.block;
    }
    if (fault == PeerFault::cuts_short && !message.body.empty()) {
      message.body.pop_back();
    }
    for (int copy = 0; copy < (fault == PeerFault::repeats ? 2 : 1); ++copy) {
      shared_->boxes[to].push_back(message);
    }
    shared_->changed.notify_all();
    return true;
  }
  std::vector<ReceivedBlock> receive(std::chrono::nanoseconds longest) override {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(
        lock, longest, [&] { return !shared_->boxes[here_].empty() || shared_->woken[here_]; });
    shared_->woken[here_] = false;
    return std::exchange(shared_->boxes[here_], {});
  }
  void wake() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->woken[here_] = true;
    shared_->changed.notify_all();
  }

 private:
  std::shared_ptr<Mailboxes> shared_;
  std::size_t here_;
};

}  // namespace sprat::io
