#include "cli/top/metrics_server.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Scrapers come one at a time, a few of them at most. More would only hold memory.
constexpr std::size_t most_scrapers = 16;
constexpr std::chrono::seconds longest_scrape{5};

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
};

std::unique_ptr<addrinfo, FreeAddresses> resolve(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  need(code == 0, "--listen: ", address.host, ": ", gai_strerror(code));
  return std::unique_ptr<addrinfo, FreeAddresses>(found);
}

}  // namespace

/// A connection: a request comes, then an answer goes.
struct MetricsServer::Scraper {
  explicit Scraper(int accepted) : descriptor(accepted) {}
  ~Scraper() { ::close(descriptor); }
  Scraper(const Scraper&) = delete;
  Scraper& operator=(const Scraper&) = delete;

  const int descriptor;
  const Clock::time_point deadline = Clock::now() + longest_scrape;
  std::string request, answer;
  bool answered = false;  ///< And waits for the other end to close.
};

MetricsServer::MetricsServer(const ListenAddress& address) {
  const auto found = resolve(address);
  constexpr int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  listener_ = ::socket(found->ai_family, kind, 0);
  const int yes = 1;
  // So that one that has just ended does not keep the port from the next.
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool listens = listener_ >= 0 &&
                       ::bind(listener_, found->ai_addr, found->ai_addrlen) == 0 &&
                       ::listen(listener_, most_scrapers) == 0;
  const int error = errno;
  if (!listens && listener_ >= 0) {
    ::close(listener_);
  }
  need(listens, "cannot listen on ", address.host, " port ", address.port, ": ",
       std::strerror(error), "; name another with --listen HOST:PORT");
}

MetricsServer::~MetricsServer() { ::close(listener_); }

std::string MetricsServer::url() const {
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const bool known = getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &bytes) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&own), bytes, host.data(), host.size(),
                                 port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) == 0;
  need(known, "the listening socket does not tell its address");
  const bool six = own.ss_family == AF_INET6;
  return text("http://", six ? "[" : "", host.data(), six ? "]" : "", ":", port.data(), "/metrics");
}

void MetricsServer::accept_one() {
  const int accepted = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (accepted >= 0) {
    scrapers_.emplace_back(accepted);
    return;
  }
  const int error = errno;
  // What lacks descriptors would be told of the same connection again and again.
  need(error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS,
       "cannot take a connection: ", std::strerror(error), "; raise ulimit -n");
}

/// False once it is over: answered and closed, or gone.
bool MetricsServer::move(Scraper& one, const std::function<std::string()>& metrics) {
  if (one.answer.empty()) {
    std::array<char, 2048> room{};
    const ssize_t got = ::recv(one.descriptor, room.data(), room.size(), 0);
    if (got <= 0) {
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    if (one.answered) {
      return true;  // more than was asked for is not looked at
    }
    one.request.append(room.data(), static_cast<std::size_t>(got));
    const std::optional<HttpVerdict> verdict = judge_request(one.request);
    if (!verdict) {
      return true;
    }
    one.answer = http_answer(*verdict, *verdict == HttpVerdict::metrics ? metrics() : "");
  }
  // Without SIGPIPE: a scraper that has gone ends its connection, not this process.
  const ssize_t sent = ::send(one.descriptor, one.answer.data(), one.answer.size(), MSG_NOSIGNAL);
  if (sent < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  one.answer.erase(0, static_cast<std::size_t>(sent));
  if (one.answer.empty()) {
    // Closed with bytes unread, a socket resets the connection, and the answer may be lost on its
    // way: so the other end closes first, or the deadline comes.
    one.answered = true;
    ::shutdown(one.descriptor, SHUT_WR);
  }
  return true;
}

void MetricsServer::serve(const std::function<std::string()>& metrics) {
  for (;;) {
    // With all places taken others wait in the kernel's queue.
    std::vector<pollfd> watched{
        {.fd = scrapers_.size() < most_scrapers ? listener_ : -1, .events = POLLIN, .revents = 0}};
    for (const Scraper& one : scrapers_) {
      const short events = one.answer.empty() ? POLLIN : POLLOUT;
      watched.push_back({.fd = one.descriptor, .events = events, .revents = 0});
    }
    constexpr int second_ms = 1000;  // when deadlines are looked at
    ::poll(watched.data(), watched.size(), scrapers_.empty() ? -1 : second_ms);
    std::size_t place = 0;
    const Clock::time_point now = Clock::now();
    for (auto one = scrapers_.begin(); one != scrapers_.end();) {
      const bool ready = watched[++place].revents != 0;
      const bool stays = ready ? move(*one, metrics) : now < one->deadline;
      one = stays && now < one->deadline ? std::next(one) : scrapers_.erase(one);
    }
    if (watched.front().revents != 0) {
      accept_one();
    }
  }
}

}  // namespace sprat::cli
