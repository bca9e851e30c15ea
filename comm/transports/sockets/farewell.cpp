#include "comm/transports/sockets/farewell.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "comm/transports/sockets/tcp.hpp"

namespace sprat::comm::sockets {
namespace {

using namespace std::chrono_literals;

/// What was sent is with its host by then, unless that does not read.
constexpr auto longest_farewell = 1s;
/// A host on the same wire has acknowledged after the first, one that is far away or busy later.
constexpr auto first_pause = 50us, last_pause = 2'000us;

/// The other end has closed: it reads no more, and what it has not acknowledged it never will.
bool has_gone(int descriptor) noexcept {
  std::byte next{};
  const ssize_t got = ::recv(descriptor, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool is_awaited(const Channel& channel) noexcept {
  return unacknowledged(channel.descriptor()) > 0 && !has_gone(channel.descriptor());
}

}  // namespace

void see_off(const std::vector<std::unique_ptr<Channel>>& channels,
             std::span<std::byte> buffer) noexcept {
  const auto end = std::chrono::steady_clock::now() + longest_farewell;
  std::chrono::microseconds pause = first_pause;
  for (bool waits = true; waits && std::chrono::steady_clock::now() < end;
       pause = std::min<std::chrono::microseconds>(2 * pause, last_pause)) {
    waits = false;
    for (const auto& channel : channels) {
      if (channel->opened()) {
        channel->discard(buffer);
        waits = waits || is_awaited(*channel);
      }
    }
    if (waits) {
      std::this_thread::sleep_for(pause);
    }
  }
}

}  // namespace sprat::comm::sockets
