#include "plugins/nccl_net/net_comm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"
#include "plugins/nccl_net/guard.hpp"

namespace sprat::nccl_net {
namespace {

using State = comm::MessageRequest::State;

/// NCCL has at most 32 requests of 8 messages under way on each comm; of a send comm as many sends,
/// since each may be for another message of the peer's requests.
constexpr std::size_t most_messages = std::size_t{most_requests} * most_receives;

/// Each moves up to 1 MiB each way: a call lasts a millisecond at most.
constexpr int most_turns = 4;

std::uint64_t wire_tag(int tag) { return static_cast<std::uint32_t>(tag); }

}  // namespace

NetComm::NetComm(std::unique_ptr<comm::endpoint::Connection> connection)
    : connection_(std::move(connection)), messages_(most_messages), requests_(most_messages) {
  for (auto& message : messages_) {
    free_messages_.push_back(&message);
  }
  for (NetRequest& request : requests_) {
    request.comm = this;
    free_requests_.push_back(&request);
  }
}

NetRequest* NetComm::take(std::size_t messages) {
  if (free_requests_.empty() || free_messages_.size() < messages) {
    return nullptr;
  }
  NetRequest& request = *free_requests_.back();
  free_requests_.pop_back();
  request.count = static_cast<int>(messages);
  for (std::size_t at = 0; at < messages; ++at) {
    request.messages[at] = free_messages_.back();
    free_messages_.pop_back();
  }
  return &request;
}

void NetComm::release(NetRequest& request) {
  for (int at = 0; at < request.count; ++at) {
    free_messages_.push_back(request.messages[static_cast<std::size_t>(at)]);
  }
  request.count = 0;
  free_requests_.push_back(&request);
}

NetRequest* NetComm::send(std::span<const std::byte> data, int tag) {
  const std::lock_guard lock(mutex_);
  NetRequest* request = take(1);
  if (request == nullptr) {
    connection_->progress();  // nobody may be testing those that are in the way
    return nullptr;
  }
  connection_->send(*request->messages[0], wire_tag(tag), data);
  return request;
}

/// NCCL's tags tell the messages of one request apart; whole requests are matched in order. By tag,
/// in order for each, is the same, since a tag's first message can only be for the first request
/// with that tag that still waits for one.
NetRequest* NetComm::receive(std::span<const NetReceive> receives) {
  const std::lock_guard lock(mutex_);
  NetRequest* request = take(receives.size());
  if (request == nullptr) {
    connection_->progress();
    return nullptr;
  }
  for (std::size_t at = 0; at < receives.size(); ++at) {
    const NetReceive& one = receives[at];
    connection_->recv(*request->messages[at], wire_tag(one.tag),
                      {static_cast<std::byte*>(one.data), one.bytes});
  }
  return request;
}

Result NetComm::test(NetRequest& request, int* done, int* bytes) {
  const std::lock_guard lock(mutex_);
  *done = 0;
  require(request.busy(), "test() of a request that has been told to be done");
  const std::span messages(request.messages.data(), static_cast<std::size_t>(request.count));
  const auto posted = [](const auto* one) { return one->state == State::posted; };
  // As long as bytes come or go, and not for long: NCCL's thread has other connections, and lets
  // others have its core whenever a call ends with nothing done.
  for (int turn = 0; turn < most_turns && std::any_of(messages.begin(), messages.end(), posted) &&
                     connection_->progress();
       ++turn) {
  }
  const auto failed = [](const auto* one) { return one->state == State::failed; };
  const auto bad = std::find_if(messages.begin(), messages.end(), failed);
  if (bad != messages.end()) {
    return fail(**bad);
  }
  if (std::any_of(messages.begin(), messages.end(), posted)) {
    return Result::success;
  }
  for (std::size_t at = 0; at < messages.size() && bytes != nullptr; ++at) {
    bytes[at] = static_cast<int>(messages[at]->bytes);
  }
  *done = 1;
  release(request);
  return Result::success;
}

Result NetComm::fail(const comm::MessageRequest& message) {
  // Once: NCCL tests all requests of a comm that has failed, again and again.
  if (!std::exchange(has_complained_, true)) {
    const std::string why =
        message.error == EMSGSIZE
            ? text("a message of ", message.bytes, " bytes is longer than its receive")
            : text("the connection to the other end is lost: ", std::strerror(message.error));
    log_line(LogLevel::warn, log_net, why);
  }
  return result_of(message.error);
}

}  // namespace sprat::nccl_net
