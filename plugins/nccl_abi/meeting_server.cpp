// The server's loop: poll() over a listener and some connections, each of one request.
#include "plugins/nccl_abi/meeting_server.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "comm/base/thread.hpp"
#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl {
namespace {

using namespace std::chrono_literals;

/// Ranks of a large job come at once; the system takes fewer if it is set so.
constexpr int backlog = 4096;
/// More connections than this wait in the backlog: a stranger who opens many cannot take every
/// descriptor of the process.
constexpr std::size_t most_connections = 512;
/// How long a get() waits where many do: they give way to the one who sets the key, and ask again.
constexpr auto crowded_patience = 1s;
constexpr auto request_patience = 10s;
/// How long connections wait in the backlog once the process has no descriptor for them.
constexpr auto accept_pause = 100ms;

int listen_at(std::uint16_t port) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket >= 0) {
    const int no = 0;  // IPv4 comes to the same socket
    static_cast<void>(setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    if (bind(socket, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0 &&
        listen(socket, backlog) == 0) {
      return socket;
    }
    close(socket);
  }
  // A system without IPv6.
  const int v4 = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  if (v4 >= 0 && (bind(v4, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0 ||
                  listen(v4, backlog) != 0)) {
    close(v4);
    return -1;
  }
  return v4;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &bytes);
  // The port lies at the same place in both families' addresses.
  return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

/// A new thread has its maker's mask.
class SignalsBlocked final {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

MeetingServer::MeetingServer(const Config& config) {
  for (int port = config.ports.first; listener_ < 0 && port <= config.ports.last; ++port) {
    listener_ = listen_at(static_cast<std::uint16_t>(port));
  }
  if (listener_ < 0) {
    throw Error(ErrorCode::unavailable,
                "ncclGetUniqueId cannot listen" +
                    (config.ports.any() ? std::string()
                                        : " on ports " + std::to_string(config.ports.first) +
                                              " to " + std::to_string(config.ports.last)) +
                    ": " + std::system_category().message(errno));
  }
  port_ = port_of(listener_);
  try {
    const SignalsBlocked blocked;  // the program's signals are for its own threads
    start_thread("the server of ncclUniqueIds", [this] { serve(); }).detach();
  } catch (...) {
    close(listener_);  // nobody serves it, and the next id opens another one
    throw;
  }
}

void MeetingServer::add(const Key& key) {
  const std::lock_guard lock(mutex_);
  keys_.insert(key);
}

void MeetingServer::serve() {
  std::vector<pollfd> polled;
  for (;;) {
    if (accept_again_ && Clock::now() >= *accept_again_) {
      accept_again_.reset();
    }
    const bool full = connections_.size() >= most_connections || accept_again_;
    polled.assign(1, {listener_, static_cast<short>(full ? 0 : POLLIN), 0});
    for (const Connection& connection : connections_) {
      // One that waits for a key is read too: that is how its end is noticed.
      polled.push_back(
          {connection.socket, static_cast<short>(connection.out.empty() ? POLLIN : POLLOUT), 0});
    }
    if (poll(polled.data(), polled.size(), poll_timeout()) < 0 && errno != EINTR) {
      return;  // no memory in the kernel: who asks is told that nobody answers
    }
    const Clock::time_point now = Clock::now();
    for (std::size_t at = 0; at < connections_.size(); ++at) {
      if (polled[at + 1].revents != 0) {
        read(connections_[at]);
      }
      expire(connections_[at], now);
    }
    // Twice: what the first round sets may be what others wait for, who stand before it.
    for (int round = 0; round < 2; ++round) {
      for (Connection& connection : connections_) {
        answer_if_whole(connection);
      }
    }
    for (Connection& connection : connections_) {
      write(connection);
    }
    std::erase_if(connections_, [](const Connection& connection) {
      return connection.over && close(connection.socket) <= 0;
    });
    if (polled[0].revents != 0) {
      accept_all();
    }
  }
}

int MeetingServer::poll_timeout() const {
  auto first = accept_again_;
  for (const Connection& connection : connections_) {
    first = std::min(first.value_or(connection.until), connection.until);
  }
  if (!first) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

void MeetingServer::accept_all() {
  while (connections_.size() < most_connections) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      // What was not taken keeps the listener readable, so poll() would return for it at once.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_again_ = Clock::now() + accept_pause;
      }
      return;
    }
    connections_.push_back({.socket = socket, .until = Clock::now() + request_patience});
  }
}

void MeetingServer::read(Connection& connection) {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t got = recv(connection.socket, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      connection.in.append(bytes.data(), static_cast<std::size_t>(got));
    }
    // Nobody has more to say than a request.
    const bool too_much =
        connection.in.size() > sizeof(RequestHead) + most_name_bytes + most_value_bytes;
    const bool later = got < 0 && (errno == EAGAIN || errno == EINTR);
    connection.over |= too_much || (got <= 0 && !later);
    if (got <= 0 || too_much) {
      return;
    }
  }
}

void MeetingServer::answer_if_whole(Connection& connection) {
  if (connection.over || !connection.out.empty() || connection.in.size() < sizeof(RequestHead)) {
    return;
  }
  const auto head = head_of<RequestHead>(connection.in);
  const std::lock_guard lock(mutex_);
  if (head.magic != request_magic || head.name_bytes > most_name_bytes ||
      head.value_bytes > most_value_bytes || !keys_.contains(head.key)) {
    connection.over = true;  // a stranger, or an id that has been used up
    return;
  }
  if (connection.in.size() < sizeof(head) + head.name_bytes + head.value_bytes) {
    return;
  }
  const std::pair drawer(head.key, connection.in.substr(sizeof(head), head.name_bytes));
  std::string value;
  bool found = true;
  if (head.verb == Verb::set) {
    values_[drawer] = connection.in.substr(sizeof(head) + head.name_bytes, head.value_bytes);
  } else if (head.verb == Verb::remove) {
    // Sprat removes its one key when all ranks have joined: nobody needs the id any more.
    values_.erase(drawer);
    keys_.erase(head.key);
  } else if (const auto place = values_.find(drawer); place != values_.end()) {
    value = place->second;
  } else {
    found = false;
    const bool crowded = connections_.size() > most_connections / 2;
    const std::chrono::milliseconds asked(head.patience_ms);
    const auto patience =
        crowded ? std::min<std::chrono::milliseconds>(asked, crowded_patience) : asked;
    if (!connection.waits) {
      connection.waits = true;
      connection.until = Clock::now() + patience;
    }
    if (Clock::now() < connection.until) {
      return;
    }
  }
  append(connection.out, AnswerHead{found ? 1u : 0u, static_cast<std::uint32_t>(value.size())});
  connection.out += value;
  connection.waits = false;
  connection.until = Clock::now() + request_patience;
}

void MeetingServer::write(Connection& connection) {
  if (connection.over || connection.out.empty()) {
    return;
  }
  const ssize_t sent =
      send(connection.socket, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
  if (sent < 0) {
    connection.over = errno != EAGAIN && errno != EINTR;
    return;
  }
  connection.out.erase(0, static_cast<std::size_t>(sent));
  connection.over = connection.out.empty();
}

// One that waits for a key is answered at its end instead, by answer_if_whole().
void MeetingServer::expire(Connection& connection, Clock::time_point now) {
  connection.over |= !connection.waits && now >= connection.until;
}

}  // namespace sprat::nccl
