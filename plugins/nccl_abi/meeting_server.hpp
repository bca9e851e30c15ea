// Who serves the drawers of all ncclUniqueIds that this process has made.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugins/nccl_abi/meeting_frame.hpp"
#include "sprat/config.hpp"

namespace sprat::nccl {

/// One thread serves; any other may add keys. Never destroyed: the thread may be in it until the
/// process ends.
class MeetingServer final {
 public:
  /// Listens, on a port that `config` allows, and starts the thread. Throws Error{unavailable} if
  /// there is no port or no thread to be had; nothing is left behind then.
  explicit MeetingServer(const Config& config);
  MeetingServer(const MeetingServer&) = delete;
  MeetingServer& operator=(const MeetingServer&) = delete;

  std::uint16_t port() const { return port_; }
  void add(const Key& key);

 private:
  using Clock = std::chrono::steady_clock;
  /// Reads a request, waits for its key if need be, writes the answer, ends.
  struct Connection {
    int socket = -1;
    Clock::time_point until;  ///< A request that is not whole by then is dropped.
    std::string in{}, out{};
    bool waits = false;  ///< For a key that is not there yet.
    bool over = false;
  };

  void serve();
  int poll_timeout() const;
  void accept_all();
  void read(Connection& connection);
  void answer_if_whole(Connection& connection);
  void write(Connection& connection);
  void expire(Connection& connection, Clock::time_point now);

  int listener_ = -1;
  std::uint16_t port_ = 0;
  // The thread's alone, up to mutex_:
  /// Set while there is no descriptor for another connection: when to try again.
  std::optional<Clock::time_point> accept_again_;
  std::vector<Connection> connections_;
  std::map<std::pair<Key, std::string>, std::string> values_;
  std::mutex mutex_;    ///< Guards keys_.
  std::set<Key> keys_;  ///< Of ids that have been made and not used up.
};

}  // namespace sprat::nccl
