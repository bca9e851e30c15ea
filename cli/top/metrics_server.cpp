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
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::cli {
namespace {

// Scrapers come one at a time, a few of them at most. More would only hold memory.
constexpr std::size_t most_scrapers = 16;
constexpr std::chrono::seconds longest_scrape{5};
/// Where a descriptor is lacking for the next one.
constexpr std::chrono::milliseconds before_next_accept{200};

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

/// -1 and errno.
int listen_at(const addrinfo& address) {
  constexpr int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  const int listener = ::socket(address.ai_family, kind, 0);
  if (listener < 0) {
    return listener;
  }
  const int yes = 1;
  // So that one that has just ended does not keep the port from the next.
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(listener, address.ai_addr, address.ai_addrlen) == 0 &&
      ::listen(listener, most_scrapers) == 0) {
    return listener;
  }
  const int error = errno;
  ::close(listener);
  errno = error;
  return -1;
}

std::string numbers_of(const addrinfo& address) {
  std::array<char, NI_MAXHOST> host{};
  const int code = getnameinfo(address.ai_addr, address.ai_addrlen, host.data(), host.size(),
                               nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? host.data() : "an address";
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

MetricsServer::MetricsServer(const ListenAddress& address)
    : MetricsServer(*resolve(address), address) {}

// A name may be several addresses, as localhost is ::1 and 127.0.0.1, and not all of them this
// host's, or of a kind that its kernel has.
MetricsServer::MetricsServer(const addrinfo& candidates, const ListenAddress& address) {
  std::string complaints;
  for (const addrinfo* one = &candidates; one != nullptr && listener_ < 0; one = one->ai_next) {
    listener_ = listen_at(*one);
    if (listener_ < 0) {
      const int error = errno;
      complaints +=
          text(complaints.empty() ? "" : ", ", numbers_of(*one), ": ", std::strerror(error));
    }
  }
  need(listener_ >= 0, "cannot listen on ", address.host, " port ", address.port, ": ", complaints,
       "; name another with --listen HOST:PORT");
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
  if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) {
    return;  // the connection has ended before it was taken, or another one is to be taken
  }
  // It stays in the kernel's queue, and poll() would tell of it again at once, for ever.
  rests_until_ = Clock::now() + before_next_accept;
  if (!std::exchange(told_of_descriptors_, true)) {
    log().warn("a scraper waits to be let in: {}; raise ulimit -n", std::strerror(error));
  }
}

/// With all places taken others wait in the kernel's queue.
bool MetricsServer::accepts(Clock::time_point now) const {
  return scrapers_.size() < most_scrapers && (!rests_until_ || now >= *rests_until_);
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
    const bool may_accept = accepts(Clock::now());
    std::vector<pollfd> watched{
        {.fd = may_accept ? listener_ : -1, .events = POLLIN, .revents = 0}};
    for (const Scraper& one : scrapers_) {
      const short events = one.answer.empty() ? POLLIN : POLLOUT;
      watched.push_back({.fd = one.descriptor, .events = events, .revents = 0});
    }
    constexpr int second_ms = 1000;  // when deadlines are looked at
    const int longest_ms = !may_accept         ? static_cast<int>(before_next_accept.count())
                           : scrapers_.empty() ? -1
                                               : second_ms;
    ::poll(watched.data(), watched.size(), longest_ms);
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
