#include "comm/knocking.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto patience = 3s;

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

/// A port that nobody has may be lent to the very socket that knocks there: it then meets itself.
bool met_itself(int socket) {
  sockaddr_storage here{}, there{};
  socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_bytes) == 0 &&
         getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_bytes) == 0 &&
         here_bytes == there_bytes && std::memcmp(&here, &there, here_bytes) == 0;
}

bool opens(const addrinfo& address, Clock::time_point deadline) {
  const Descriptor socket{
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (socket.number < 0) {
    return errno != EAFNOSUPPORT;  // out of descriptors: nothing is known against it
  }
  if (connect(socket.number, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return false;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{socket.number, POLLOUT, 0};
    if (left <= 0ms || poll(&ready, 1, static_cast<int>(left.count())) <= 0) return false;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.number, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return false;
  }
  return !met_itself(socket.number);
}

bool opens(const Door& door, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  if (getaddrinfo(door.host.c_str(), text(door.port).c_str(), &hints, &first) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(first, freeaddrinfo);
  return opens(*first, deadline);
}

}  // namespace

bool somebody_listens(const std::vector<Door>& doors) {
  const auto deadline = Clock::now() + patience;
  for (const Door& door : doors) {
    if (opens(door, deadline)) return true;
  }
  return false;
}

}  // namespace sprat::comm
