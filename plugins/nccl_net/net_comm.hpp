// One end of a connection as NCCL uses it: requests that are started, then tested.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/endpoint/connection.hpp"
#include "plugins/nccl_net/abi/types.hpp"

namespace sprat::nccl_net {

/// Receives that one request may hold.
inline constexpr int most_receives = 8;

class NetComm;

/// What NCCL holds of a send, or of a receive of several messages.
struct NetRequest {
  NetComm* comm = nullptr;
  std::array<comm::MessageRequest*, most_receives> messages{};
  int count = 0;  ///< 0: nobody's.
  bool busy() const { return count > 0; }
};

/// A message of an irecv.
struct NetReceive {
  void* data = nullptr;
  std::size_t bytes = 0;
  int tag = 0;
};

/// Any thread; each call holds the lock, which only threads that share one comm wait for.
class NetComm {
 public:
  explicit NetComm(std::unique_ptr<comm::endpoint::Connection> connection);

  /// Null if too many are under way: NCCL calls again.
  NetRequest* send(std::span<const std::byte> data, int tag);
  NetRequest* receive(std::span<const NetReceive> receives);
  /// Moves what moves. Done is told once, with the bytes of each message, and the request is
  /// nobody's then. One that has failed keeps telling why.
  Result test(NetRequest& request, int* done, int* bytes);

 private:
  NetRequest* take(std::size_t messages);
  void release(NetRequest& request);
  Result fail(const comm::MessageRequest& message);

  std::mutex mutex_;  ///< Guards all of it.
  std::unique_ptr<comm::endpoint::Connection> connection_;
  std::vector<comm::MessageRequest> messages_;
  std::vector<comm::MessageRequest*> free_messages_;
  std::vector<NetRequest> requests_;
  std::vector<NetRequest*> free_requests_;
  bool has_complained_ = false;
};

}  // namespace sprat::nccl_net
