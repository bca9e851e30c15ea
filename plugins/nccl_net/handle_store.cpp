#include "plugins/nccl_net/handle_store.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/endpoint/attempt.hpp"

namespace sprat::nccl_net {
namespace {

using comm::MessageRequest;
using comm::endpoint::Connection;
using Clock = std::chrono::steady_clock;

/// An address, a name and a token: some hundred bytes.
constexpr std::size_t most_value = 64 * 1024;
constexpr std::uint64_t value_tag = 1;
constexpr std::chrono::microseconds pause{200};

/// Calls until it gives something or the time is over.
template <class Call>
auto poll_until(Clock::time_point end, Call call) {
  for (;;) {
    auto result = call();
    if (result || Clock::now() > end) {
      return result;
    }
    std::this_thread::sleep_for(pause);
  }
}

bool has_ended(Connection& connection, const MessageRequest& request) {
  if (request.state == MessageRequest::State::posted) {
    connection.progress();
  }
  return request.state != MessageRequest::State::posted;
}

}  // namespace

void HandleStore::set(const std::string& /*key*/, const std::string& value) {
  require(listener_ != nullptr, "only rank 0 says where its job meets");
  const auto end = Clock::now() + patience_;
  for (int told = 0; told < others_; ++told) {
    const std::unique_ptr<Connection> connection =
        poll_until(end, [this] { return listener_->accept(); });
    MessageRequest request;
    const bool has_come = connection != nullptr;
    if (has_come) {
      connection->send(request, value_tag, std::as_bytes(std::span(value)));
    }
    if (!has_come || !poll_until(end, [&] { return has_ended(*connection, request); })) {
      throw Error(ErrorCode::timeout,
                  text("only ", told, " of ", others_, " ranks have connected within ",
                       patience_.count(), " ms; SPRAT_JOIN_TIMEOUT says how long is waited"));
    }
    // One that has gone meanwhile is missed when the job joins, by its number.
  }
}

std::optional<std::string> HandleStore::get(const std::string& /*key*/,
                                            std::chrono::milliseconds patience) {
  if (value_) {
    return value_;
  }
  require(invitation_.has_value(), "rank 0 sets what others get");
  const auto end = Clock::now() + patience;
  comm::endpoint::Attempt attempt(device_, *invitation_);
  const auto connection = poll_until(end, [&attempt] { return attempt.poll(); });
  if (!connection) {
    return std::nullopt;
  }
  std::vector<char> room(most_value);
  MessageRequest request;
  connection->recv(request, value_tag, std::as_writable_bytes(std::span(room)));
  poll_until(end, [&] { return has_ended(*connection, request); });
  if (request.state != MessageRequest::State::done) {
    return std::nullopt;
  }
  value_.emplace(room.data(), request.bytes);
  return value_;
}

}  // namespace sprat::nccl_net
