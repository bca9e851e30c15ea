// What a transport knows of a posted request lies in the request itself, so that posting, queueing
// and ending one allocates nothing.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "comm/transports/transport.hpp"

namespace sprat::comm {

/// Lies in MessageRequest::provider.
struct PendingMessage {
  MessageRequest* next = nullptr;     ///< In its queue.
  const std::byte* source = nullptr;  ///< Of a send.
  std::byte* target = nullptr;        ///< Of a receive.
  std::size_t bytes = 0;              ///< Of the message sent, or of the buffer received into.
  std::size_t begun = 0;              ///< Of a send in pieces: bytes of those that were begun.
  std::size_t sent = 0;               ///< What has gone, as its transport counts.
  std::uint64_t tag = 0;
  std::uint64_t id = 0;  ///< Of a send that the peer knows by a number.
};
static_assert(sizeof(PendingMessage) <= sizeof(MessageRequest::provider));

inline PendingMessage& pending(MessageRequest& request) {
  return *std::launder(reinterpret_cast<PendingMessage*>(request.provider.data()));
}

/// Begins a request.
inline PendingMessage& post(MessageRequest& request) {
  request.state = MessageRequest::State::posted;
  request.bytes = 0;
  request.error = 0;
  return *std::construct_at(reinterpret_cast<PendingMessage*>(request.provider.data()));
}

/// Ends a request well.
inline void finish(MessageRequest& request, std::size_t bytes) noexcept {
  request.bytes = bytes;
  request.state = MessageRequest::State::done;
}

/// Ends a request as failed.
inline void fail(MessageRequest& request, int error) noexcept {
  request.error = error;
  request.state = MessageRequest::State::failed;
}

/// Ends a receive whose message has so many bytes, more than fit.
inline void fail_too_long(MessageRequest& request, std::size_t bytes) noexcept {
  fail(request, EMSGSIZE);
  request.bytes = bytes;
}

/// Posted requests in order, linked through themselves.
class RequestQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  MessageRequest* front() const { return first_; }
  void push(MessageRequest& request) {
    pending(request).next = nullptr;
    (first_ == nullptr ? first_ : pending(*last_).next) = &request;
    last_ = &request;
  }
  /// Takes the first request out for which `wanted` holds; null if there is none.
  template <class Predicate>
  MessageRequest* take(Predicate wanted) {
    MessageRequest* before = nullptr;
    for (MessageRequest* at = first_; at != nullptr; before = at, at = pending(*at).next) {
      if (wanted(*at)) {
        (before == nullptr ? first_ : pending(*before).next) = pending(*at).next;
        if (last_ == at) {
          last_ = before;
        }
        return at;
      }
    }
    return nullptr;
  }
  /// Null if it is empty.
  MessageRequest* take_front() {
    return take([](const MessageRequest&) { return true; });
  }

 private:
  MessageRequest* first_ = nullptr;
  MessageRequest* last_ = nullptr;
};

}  // namespace sprat::comm
