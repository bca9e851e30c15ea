// One thread and one epoll: blocks are large and few, and more threads would take cores from those
// who compute.
#include "io/caches/socket_peers.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::io {
namespace {

constexpr std::chrono::seconds longest_greeting{10};
constexpr std::chrono::seconds before_next_try{1};
/// A host that is gone is noticed when nothing that was sent is acknowledged for so long.
constexpr int unacknowledged_ms = 10'000;
/// Connections whose other end has not proved itself, beside one for each host.
constexpr std::size_t strangers = 16;
/// Where a descriptor is lacking.
constexpr std::chrono::milliseconds before_next_accept{200};
/// So often deadlines are looked at.
constexpr int look_ms = 250;

constexpr std::uint32_t to_read = EPOLLIN, to_write = EPOLLOUT, broken = EPOLLERR | EPOLLHUP;

/// Whose event it is: in the upper half of epoll's data.
enum class Watched : std::uint64_t { listener, wake, outgoing, incoming };
std::uint64_t watched(Watched what, std::uint64_t number) {
  return static_cast<std::uint64_t>(what) << 32 | number;
}
std::uint64_t watched_incoming(int descriptor) {
  return watched(Watched::incoming, static_cast<std::uint64_t>(descriptor));
}

union PeerSocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};
struct ParsedPeerAddress {
  PeerSocketAddress address{};
  socklen_t bytes = 0;
};

/// Numbers only: to look up a name may take seconds.
ParsedPeerAddress parse_peer_address(const std::string& address, std::uint16_t port) {
  ParsedPeerAddress parsed;
  if (::inet_pton(AF_INET, address.c_str(), &parsed.address.v4.sin_addr) == 1) {
    parsed.address.v4.sin_family = AF_INET;
    parsed.address.v4.sin_port = htons(port);
    parsed.bytes = sizeof parsed.address.v4;
  } else if (::inet_pton(AF_INET6, address.c_str(), &parsed.address.v6.sin6_addr) == 1) {
    parsed.address.v6.sin6_family = AF_INET6;
    parsed.address.v6.sin6_port = htons(port);
    parsed.bytes = sizeof parsed.address.v6;
  }
  require(parsed.bytes > 0, "\"", address, "\" is no address of numbers, as 10.0.0.7 or fd00::7");
  return parsed;
}

OwnedDescriptor stream_socket(int family) {
  return OwnedDescriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_socket_option(int descriptor, int level, int option, int value) {
  // None of them is needed for a right answer, so a system that lacks one goes on without.
  static_cast<void>(::setsockopt(descriptor, level, option, &value, sizeof value));
}

void tune_socket(int descriptor) {
  set_socket_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_socket_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
  set_socket_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
}

std::vector<std::string> names_of_hosts(const std::vector<PeerAddress>& hosts) {
  std::vector<std::string> names;
  for (const PeerAddress& host : hosts) {
    names.push_back(host.name);
  }
  return names;
}

}  // namespace

PeerListener::PeerListener(const std::string& address, std::uint16_t port) {
  ParsedPeerAddress parsed = parse_peer_address(address, port);
  socket_ = stream_socket(parsed.address.any.sa_family);
  const int descriptor = socket_.number();
  // Whoever listened on the port before may have left connections that the kernel still buries.
  set_socket_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
  const bool listens = descriptor >= 0 &&
                       ::bind(descriptor, &parsed.address.any, parsed.bytes) == 0 &&
                       ::listen(descriptor, SOMAXCONN) == 0 &&
                       ::getsockname(descriptor, &parsed.address.any, &parsed.bytes) == 0;
  need(listens, "cannot listen for hosts that share blocks on ", address, " port ", port, ": ",
       std::strerror(errno), "; name an address of this host that the others reach");
  port_ = ntohs(parsed.address.any.sa_family == AF_INET ? parsed.address.v4.sin_port
                                                        : parsed.address.v6.sin6_port);
}

SocketPeers::SocketPeers(PeerListener listener, SocketPeersOptions options)
    : options_(std::move(options)),
      names_(names_of_hosts(options_.hosts)),
      listener_(std::move(listener)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      outgoing_(options_.hosts.size()) {
  require(options_.here < options_.hosts.size(), "this host is number ", options_.here, " of ",
          options_.hosts.size(), " that share blocks");
  require(options_.secret.size() >= 16,
          "hosts that share blocks need a secret of 16 bytes or more");
  need(epoll_.number() >= 0 && wake_.number() >= 0, "cannot watch sockets: ", std::strerror(errno));
  for (const PeerAddress& host : options_.hosts) {
    parse_peer_address(host.address, host.port);  // here, where the caller hears of it
  }
  watch(listener_.descriptor(), watched(Watched::listener, 0), to_read);
  watch(wake_.number(), watched(Watched::wake, 0), to_read);
  thread_ = start_thread("the sockets of hosts that share blocks", [this] { run(); });
}

SocketPeers::~SocketPeers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_thread();
  thread_.join();
}

void SocketPeers::watch(int descriptor, std::uint64_t tag, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, descriptor, &event) != 0) {
    need(::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0,
         "cannot watch a socket: ", std::strerror(errno));
  }
}

/// Before a watched connection is closed. A child of fork() may hold it as well, and as long as
/// anybody does epoll tells of its end again and again, by a tag that is the next connection's.
void SocketPeers::unwatch(int descriptor) noexcept {
  static_cast<void>(::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr));
}

void SocketPeers::wake_thread() noexcept {
  const std::uint64_t one = 1;
  // Fails only if the counter is full: then it is awake.
  static_cast<void>(!::write(wake_.number(), &one, sizeof one));
}

bool SocketPeers::send(std::size_t to, const PeerHeader& header, std::span<const std::byte> body,
                       std::shared_ptr<const void> owner) {
  QueuedMessage message{
      .header = encode_peer_header(header), .body = body, .owner = std::move(owner), .sent = 0};
  {
    const std::lock_guard lock(mutex_);
    Outgoing& one = outgoing_[to];
    const bool full =
        !one.queue.empty() && one.queued_bytes + message.bytes() > options_.queued_bytes;
    if (stopping_ || one.rests || full) {
      return false;
    }
    one.queued_bytes += message.bytes();
    one.queue.push_back(std::move(message));
  }
  wake_thread();
  return true;
}

std::vector<ReceivedBlock> SocketPeers::receive(std::chrono::nanoseconds longest) {
  std::unique_lock lock(mutex_);
  received_.wait_for(lock, longest, [this] { return !inbox_.empty() || woken_; });
  woken_ = false;
  std::vector<ReceivedBlock> messages = std::exchange(inbox_, {});
  const bool was_full = std::exchange(inbox_bytes_, 0) > options_.inbox_bytes;
  lock.unlock();
  if (was_full) {
    wake_thread();  // it has stopped reading
  }
  return messages;
}

void SocketPeers::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  received_.notify_all();
}

void SocketPeers::run() {
  std::array<epoll_event, 64> events{};
  while (true) {
    const int count =
        ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), look_ms);
    const Time now = std::chrono::steady_clock::now();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        return;
      }
    }
    try {
      for (int index = 0; index < count; ++index) {
        const epoll_event& event = events[static_cast<std::size_t>(index)];
        handle(event.data.u64, event.events, now);
      }
      resume_reading();
      start_sending(now);
      end_overdue(now);
      accept_again(now);
    } catch (const std::exception& error) {
      log().warn("hosts that share blocks: {}", error.what());
    }
  }
}

void SocketPeers::handle(std::uint64_t tag, std::uint32_t events, Time now) {
  const auto number = static_cast<std::uint32_t>(tag);
  switch (static_cast<Watched>(tag >> 32)) {
    case Watched::listener:
      accept_some(now);
      return;
    case Watched::wake: {
      std::uint64_t taken = 0;
      static_cast<void>(!::read(wake_.number(), &taken, sizeof taken));
      return;
    }
    case Watched::outgoing:
      if ((events & broken) != 0) {
        give_up(number, now);
      } else {
        go_on(number, now);
      }
      return;
    case Watched::incoming: {
      const auto found = incoming_.find(static_cast<int>(number));
      if (found == incoming_.end()) {
        return;
      }
      // One that is not read from tells of its end again and again.
      const bool ended = found->second.paused && (events & broken) != 0;
      if (ended || !read_some(found->second)) {
        unwatch(found->first);
        incoming_.erase(found);
      }
      return;
    }
  }
}

/// Where something waits to be sent.
void SocketPeers::start_sending(Time now) {
  for (std::size_t host = 0; host < outgoing_.size(); ++host) {
    Outgoing& one = outgoing_[host];
    {
      const std::lock_guard lock(mutex_);
      one.rests = one.rests && now < one.deadline;
      if (one.queue.empty() || one.rests) {
        continue;
      }
    }
    if (!one.connection) {
      connect_to(host, now);
    } else if (one.connection->ready()) {
      go_on(host, now);
    }
  }
}

void SocketPeers::connect_to(std::size_t host, Time now) {
  Outgoing& one = outgoing_[host];
  const PeerAddress& peer = options_.hosts[host];
  const ParsedPeerAddress parsed = parse_peer_address(peer.address, peer.port);
  OwnedDescriptor socket = stream_socket(parsed.address.any.sa_family);
  const bool begun =
      socket.number() >= 0 &&
      (::connect(socket.number(), &parsed.address.any, parsed.bytes) == 0 || errno == EINPROGRESS);
  if (!begun) {
    give_up(host, now);
    return;
  }
  tune_socket(socket.number());
  watch(socket.number(), watched(Watched::outgoing, host), to_read | to_write);
  one.deadline = now + longest_greeting;
  one.connection.emplace(std::move(socket), static_cast<std::uint32_t>(options_.here),
                         static_cast<std::uint32_t>(host));
}

/// Messages that waited are lost: who asked something finds out at its deadline.
void SocketPeers::give_up(std::size_t host, Time now) {
  Outgoing& one = outgoing_[host];
  if (one.connection) {
    unwatch(one.connection->descriptor());
  }
  one.connection.reset();
  one.deadline = now + before_next_try;
  std::deque<QueuedMessage> lost;  // their memory goes back without the lock
  const std::lock_guard lock(mutex_);
  lost.swap(one.queue);
  one.queued_bytes = 0;
  one.rests = true;
}

void SocketPeers::go_on(std::size_t host, Time now) {
  Outgoing& one = outgoing_[host];
  if (!one.connection) {
    return;  // it was given up in this round
  }
  const OutgoingConnection::Step step = one.connection->go_on(options_.secret);
  if (step == OutgoingConnection::Step::not_trusted) {
    log().warn("{} port {} is not the host {} that shares blocks: it does not know the secret",
               options_.hosts[host].address, options_.hosts[host].port, names_[host]);
  }
  const bool stands =
      step == OutgoingConnection::Step::goes_on && (!one.connection->ready() || send_queue(one));
  if (stands) {
    watch_outgoing(host);
  } else {
    give_up(host, now);
  }
}

void SocketPeers::watch_outgoing(std::size_t host) {
  const Outgoing& one = outgoing_[host];
  bool writes = one.connection->has_to_write();
  if (one.connection->ready()) {
    const std::lock_guard lock(mutex_);
    writes = writes || !one.queue.empty();
  }
  watch(one.connection->descriptor(), watched(Watched::outgoing, host),
        writes ? to_read | to_write : to_read);
}

/// False once the connection has ended.
bool SocketPeers::send_queue(Outgoing& one) {
  std::unique_lock lock(mutex_);
  while (!one.queue.empty()) {
    QueuedMessage& message = one.queue.front();  // others add behind it only
    lock.unlock();
    const std::optional<bool> gone = one.connection->send(message);
    if (!gone) {
      return false;
    }
    if (!*gone) {
      return true;  // epoll tells when there is room again
    }
    // The memory goes back without the lock.
    const std::shared_ptr<const void> released = std::move(message.owner);
    lock.lock();
    one.queued_bytes -= message.bytes();
    one.queue.pop_front();
  }
  return true;
}

void SocketPeers::accept_some(Time now) {
  while (true) {
    OwnedDescriptor socket(
        ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.number() < 0) {
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        rest_from_accepting(now, error);
      }
      return;
    }
    const auto unproved = static_cast<std::size_t>(std::ranges::count_if(
        incoming_, [](const auto& one) { return !one.second.connection.proved(); }));
    if (unproved >= options_.hosts.size() + strangers) {
      continue;  // closes it
    }
    const int descriptor = socket.number();
    tune_socket(descriptor);
    watch(descriptor, watched_incoming(descriptor), to_read);
    incoming_.insert_or_assign(descriptor,
                               Incoming{.connection = IncomingConnection(std::move(socket)),
                                        .deadline = now + longest_greeting});
  }
}

/// The connection stays in the kernel's queue, and epoll would tell of it again at once, for ever.
void SocketPeers::rest_from_accepting(Time now, int error) {
  watch(listener_.descriptor(), watched(Watched::listener, 0), 0);
  listens_again_ = now + before_next_accept;
  if (!std::exchange(told_of_descriptors_, true)) {
    log().warn(
        "a host that shares blocks waits to be let in: {}; raise ulimit -n if blocks stay away",
        std::strerror(error));
  }
}

void SocketPeers::accept_again(Time now) {
  if (listens_again_ && now >= *listens_again_) {
    listens_again_.reset();
    watch(listener_.descriptor(), watched(Watched::listener, 0), to_read);
  }
}

/// False once the connection is over.
bool SocketPeers::read_some(Incoming& one) {
  while (!one.paused) {
    switch (one.connection.read(options_.secret, static_cast<std::uint32_t>(options_.here),
                                options_.hosts.size())) {
      case IncomingConnection::Step::waits:
        return true;
      case IncomingConnection::Step::ended:
        return false;
      case IncomingConnection::Step::nonsense:
        log().warn("{} sends what is no message about blocks: its connection is closed",
                   names_[one.connection.from()]);
        return false;
      case IncomingConnection::Step::message:
        break;
    }
    ReceivedBlock message = one.connection.take();
    {
      const std::lock_guard lock(mutex_);
      inbox_bytes_ += peer_header_bytes + message.body.size();
      inbox_.push_back(std::move(message));
      one.paused = inbox_bytes_ > options_.inbox_bytes;
    }
    received_.notify_all();
  }
  // What comes meanwhile stays with the sender, whose queue is bounded.
  watch(one.connection.descriptor(), watched_incoming(one.connection.descriptor()), 0);
  return true;
}

void SocketPeers::resume_reading() {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_bytes_ > options_.inbox_bytes) {
      return;
    }
  }
  for (auto& [descriptor, one] : incoming_) {
    if (one.paused) {
      one.paused = false;
      watch(descriptor, watched_incoming(descriptor), to_read);
    }
  }
}

void SocketPeers::end_overdue(Time now) {
  std::erase_if(incoming_, [&](const auto& one) {
    const bool over = !one.second.connection.proved() && now > one.second.deadline;
    if (over) {
      unwatch(one.first);
    }
    return over;
  });
  for (std::size_t host = 0; host < outgoing_.size(); ++host) {
    const Outgoing& one = outgoing_[host];
    if (one.connection && !one.connection->ready() && now > one.deadline) {
      give_up(host, now);
    }
  }
}

}  // namespace sprat::io
