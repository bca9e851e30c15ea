// The network of a simulated job: messages with seeded delays that overtake each other.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transports/transport.hpp"
#include "tests/system/simulation/simulator.hpp"

namespace sprat::simulation {

/// One message under way. Its bytes are taken when it is posted, if it is short; otherwise when a
/// receive matches it, out of the sender's buffer.
struct WireMessage {
  int from = 0, to = 0;
  std::uint64_t tag = 0;
  std::vector<std::byte> copy;
  std::span<const std::byte> source;
  comm::MessageRequest* request = nullptr;  ///< The sender's; null once it has ended.
  Time arrives{};
  bool eager = false, taken = false;
};

/// All wires. Equal tags of a pair of ranks stay in order, others need not.
class Network {
 public:
  Network(Simulator& simulator, int ranks);
  std::unique_ptr<comm::MessageTransport> open(int rank);
  /// What a dead rank had not finished sending may be lost.
  void lose(int rank);
  /// A rank goes on that was stopped, and so do its long messages.
  void go_on() { tell_all(); }
  /// A descriptor of this rank's wire can be read.
  bool has_news(int rank) const { return news_[rank]; }

 private:
  friend class VirtualWires;
  bool has_arrived(const WireMessage& message) const { return message.arrives <= delivered_; }
  void deliver(const WireMessage& message);
  void tell_all();

  Simulator& simulator_;
  std::list<WireMessage> messages_;  ///< In the order of posting.
  std::size_t eager_bytes_;          ///< Longer messages wait for their receive.
  bool errors_;                      ///< Operations with the dead fail; otherwise they never end.
  bool has_descriptors_;             ///< Ranks can sleep on their wires.
  Time delivered_{};                 ///< Until then messages have arrived.
  std::vector<bool> news_;           ///< By rank: its descriptor can be read.
};

/// A rank's endpoint.
class VirtualWires final : public comm::MessageTransport, private comm::NewsDescriptors {
 public:
  VirtualWires(Network& network, int rank) : network_(network), rank_(rank) {}
  ~VirtualWires() override;
  const char* name() const override { return "virtual"; }
  comm::Blob address() override { return comm::Blob(1); }
  void connect(std::span<const comm::Blob>) override {}
  void send(comm::MessageRequest& request, int peer, std::uint64_t tag,
            std::span<const std::byte> data) override;
  void recv(comm::MessageRequest& request, int peer, std::uint64_t tag,
            std::span<std::byte> data) override;
  std::optional<std::size_t> probe(int peer, std::uint64_t tag) noexcept override;
  bool progress() noexcept override;
  comm::NewsDescriptors* news() noexcept override {
    return network_.has_descriptors_ ? this : nullptr;
  }
  void cancel(comm::MessageRequest& request) noexcept override;
  bool drops_unreceived() const noexcept override { return true; }

 private:
  struct Receive {
    comm::MessageRequest* request;
    int from;
    std::uint64_t tag;
    std::span<std::byte> target;
  };
  /// None but Network::has_news().
  std::span<const int> descriptors() const noexcept override { return {}; }
  Next next() noexcept override;
  /// The first message of its tag: equal tags keep their order.
  std::list<WireMessage>::iterator first(int from, std::uint64_t tag);
  bool match(Receive& receive);
  bool fail_if_dead(comm::MessageRequest& request, int peer);

  Network& network_;
  int rank_;
  std::list<Receive> receives_;
};

}  // namespace sprat::simulation
