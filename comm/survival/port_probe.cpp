#include "comm/survival/port_probe.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/owned_descriptor.hpp"

namespace sprat::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto longest_probe = 3s;
/// An address that has not answered for this long may never do so (its host is down, or packets to
/// it are dropped). The next one is then tried beside it, not instead of it.
constexpr std::chrono::milliseconds next_address{300};

/// When nobody listens on a port, the system may choose this very port for the socket that connects
/// to it. TCP then connects the socket to itself, which would look like a listener.
bool met_itself(int socket) {
  sockaddr_storage here{}, there{};
  socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_bytes) == 0 &&
         getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_bytes) == 0 &&
         here_bytes == there_bytes && std::memcmp(&here, &there, here_bytes) == 0;
}

/// A connection that is reset before it has said anything leaves the queue of a listener that
/// defers it, as survivor listeners do. One that is closed waits there until somebody accepts it.
void reset_when_closed(int socket) {
  using Linger = struct ::linger;  // the name alone may be somebody's variable
  constexpr Linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

enum class PortAnswer { none_yet, listens, nobody, no_descriptor };

/// Begins to connect to one address. What is known at once.
PortAnswer begin(const addrinfo& address, OwnedDescriptor& socket) {
  socket =
      OwnedDescriptor(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.number() < 0) {
    // A host without IPv6, say, cannot reach such an address, whoever listens there.
    return errno == EAFNOSUPPORT ? PortAnswer::nobody : PortAnswer::no_descriptor;
  }
  reset_when_closed(socket.number());
  if (connect(socket.number(), address.ai_addr, address.ai_addrlen) == 0) {
    return met_itself(socket.number()) ? PortAnswer::nobody : PortAnswer::listens;
  }
  return errno == EINPROGRESS ? PortAnswer::none_yet : PortAnswer::nobody;
}

PortAnswer begin(const SocketAddress& address, OwnedDescriptor& socket) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  if (getaddrinfo(address.host.c_str(), text(address.port).c_str(), &hints, &first) != 0) {
    return PortAnswer::nobody;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(first, freeaddrinfo);
  return begin(*first, socket);
}

/// Of a connection that has come to an end, well or not.
PortAnswer outcome(const OwnedDescriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 && !met_itself(socket.number()) ? PortAnswer::listens : PortAnswer::nobody;
}

/// Tries one process's addresses in their order; the next one too while those before it are silent.
class PortProbe final {
 public:
  explicit PortProbe(const std::vector<SocketAddress>& addresses) : addresses_(&addresses) {}

  bool asks() const { return answer_ == PortAnswer::none_yet; }
  /// Whoever could not be asked for want of a descriptor counts as alive: to take it for dead would
  /// split the job.
  bool listens() const { return answer_ == PortAnswer::listens || (asks() && starved_); }
  /// Sockets to poll, after as many addresses as it is time for.
  void go_on(Clock::time_point now, std::vector<pollfd>& polled) {
    while (asks() && next_ < addresses_->size() && (sockets_.empty() || now >= next_at_)) {
      OwnedDescriptor socket;
      const PortAnswer known = begin((*addresses_)[next_], socket);
      starved_ = known == PortAnswer::no_descriptor;
      if (starved_) {
        break;  // another probe may end and free one
      }
      ++next_;
      if (known == PortAnswer::listens) {
        answer_ = known;
      }
      if (known != PortAnswer::none_yet) {
        continue;
      }
      sockets_.push_back(std::move(socket));
      next_at_ = now + next_address;
    }
    if (asks() && sockets_.empty() && !starved_) {
      answer_ = PortAnswer::nobody;
    }
    for (const OwnedDescriptor& socket : sockets_) {
      polled.push_back({socket.number(), POLLOUT, 0});
    }
  }
  /// `polled` begins with what go_on() added; returns how much that was.
  std::size_t take(std::span<const pollfd> polled) {
    const std::size_t mine = sockets_.size();
    // From the end, so that erasing a socket does not shift those still to be looked at.
    for (std::size_t at = mine; at-- > 0;) {
      if (polled[at].revents == 0) {
        continue;
      }
      if (outcome(sockets_[at]) == PortAnswer::listens) {
        answer_ = PortAnswer::listens;
      }
      sockets_.erase(sockets_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (!asks()) {
      sockets_.clear();
    }
    return mine;
  }

 private:
  const std::vector<SocketAddress>* addresses_;
  std::size_t next_ = 0;  ///< The address to try next.
  Clock::time_point next_at_{};
  std::vector<OwnedDescriptor> sockets_;  ///< Under way.
  PortAnswer answer_ = PortAnswer::none_yet;
  bool starved_ = false;
};

void probe_all(std::span<PortProbe> probes) {
  const auto deadline = Clock::now() + longest_probe;
  for (auto now = Clock::now(); now < deadline; now = Clock::now()) {
    std::vector<pollfd> polled;
    for (PortProbe& one : probes) {
      one.go_on(now, polled);
    }
    if (std::ranges::none_of(probes, &PortProbe::asks)) {
      return;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now);
    // Woken early enough to try the next address; one millisecond more, since the rest was rounded
    // down.
    poll(polled.data(), polled.size(), static_cast<int>(std::min(left, next_address).count()) + 1);
    std::size_t taken = 0;
    for (PortProbe& one : probes) {
      taken += one.take(std::span(polled).subspan(taken));
    }
  }
}

}  // namespace

std::vector<bool> who_listens(std::span<const std::vector<SocketAddress>> processes) {
  std::vector<PortProbe> probes(processes.begin(), processes.end());
  for (std::size_t first = 0; first < probes.size(); first += most_probed_at_once) {
    probe_all(
        std::span(probes).subspan(first, std::min(most_probed_at_once, probes.size() - first)));
  }
  std::vector<bool> listens;
  for (const PortProbe& one : probes) {
    listens.push_back(one.listens());
  }
  return listens;
}

bool somebody_listens(const std::vector<SocketAddress>& addresses) {
  return who_listens(std::span(&addresses, 1)).front();
}

}  // namespace sprat::comm
