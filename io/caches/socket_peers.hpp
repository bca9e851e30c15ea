// Hosts that share blocks over TCP connections of their own, apart from a job's communicators: a
// message that is late or wrong here must not end a job that can read its files.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/caches/block_peers.hpp"
#include "io/caches/peer_connection.hpp"

namespace sprat::io {

/// Where a host listens.
struct PeerAddress {
  std::string name;
  std::string address;  ///< Of numbers: "10.0.0.7", "fd00::7".
  std::uint16_t port = 0;
};

/// A socket that listens, before anybody knows its port.
class PeerListener {
 public:
  /// On an address of this host, as numbers; port 0 lets the system choose. Throws
  /// Error{unavailable} naming both.
  explicit PeerListener(const std::string& address, std::uint16_t port = 0);
  std::uint16_t port() const { return port_; }
  int descriptor() const { return socket_.number(); }

 private:
  OwnedDescriptor socket_;
  std::uint16_t port_ = 0;
};

struct SocketPeersOptions {
  std::vector<PeerAddress> hosts = {};  ///< Equal on all of them.
  std::size_t here = 0;
  /// Only who knows it is listened to: both ends prove it before anything else is said.
  std::string secret = {};
  std::size_t queued_bytes = std::size_t{64} << 20;  ///< To each host, waiting to be sent.
  std::size_t inbox_bytes = std::size_t{64} << 20;   ///< Received and not taken.
};

/// One thread carries all. Connections are made when there is something to send, and anew a second
/// after one has failed.
class SocketPeers final : public BlockPeers {
 public:
  SocketPeers(PeerListener listener, SocketPeersOptions options);
  /// What waits to be sent is given up.
  ~SocketPeers() override;
  SocketPeers(const SocketPeers&) = delete;
  SocketPeers& operator=(const SocketPeers&) = delete;

  std::span<const std::string> hosts() const override { return names_; }
  std::size_t here() const override { return options_.here; }
  bool send(std::size_t to, const PeerHeader& header, std::span<const std::byte> body,
            std::shared_ptr<const void> owner) override;
  std::vector<ReceivedBlock> receive(std::chrono::nanoseconds longest) override;
  void wake() override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Outgoing {
    std::optional<OutgoingConnection> connection;
    Time deadline;  // of the greeting; while there is no connection, of the rest after a failure
    // Guarded by the mutex.
    std::deque<QueuedMessage> queue;
    std::size_t queued_bytes = 0;
    bool rests = false;
  };
  struct Incoming {
    IncomingConnection connection;
    Time deadline;        // of the greeting
    bool paused = false;  // the inbox is full
  };

  void run();
  void handle(std::uint64_t tag, std::uint32_t events, Time now);
  void wake_thread() noexcept;
  void start_sending(Time now);
  void connect_to(std::size_t host, Time now);
  void give_up(std::size_t host, Time now);
  void go_on(std::size_t host, Time now);
  bool send_queue(Outgoing& one);
  void watch_outgoing(std::size_t host);
  void accept_some(Time now);
  void rest_from_accepting(Time now, int error);
  void accept_again(Time now);
  bool read_some(Incoming& one);
  void end_overdue(Time now);
  void resume_reading();
  void watch(int descriptor, std::uint64_t tag, std::uint32_t events);
  void unwatch(int descriptor) noexcept;

  const SocketPeersOptions options_;
  std::vector<std::string> names_;
  const PeerListener listener_;
  const OwnedDescriptor epoll_, wake_;
  std::optional<Time> listens_again_;  // there were no descriptors
  bool told_of_descriptors_ = false;
  // The thread's own, but for the queues.
  std::vector<Outgoing> outgoing_;  // by host
  std::map<int, Incoming> incoming_;
  std::mutex mutex_;  // guards queues and all below but the thread
  std::condition_variable received_;
  std::vector<ReceivedBlock> inbox_;
  std::size_t inbox_bytes_ = 0;
  bool woken_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace sprat::io
