// The client's side of the store of an ncclUniqueId, and this process's server.
#include "plugins/nccl_abi/meeting_store.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>

#include "comm/base/owned_descriptor.hpp"
#include "plugins/nccl_abi/errors.hpp"
#include "plugins/nccl_abi/meeting_server.hpp"

namespace sprat::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

using Socket = comm::OwnedDescriptor;

std::string reason() { return std::system_category().message(errno); }

/// False once the deadline has passed.
bool ready(const Socket& socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd one{socket.number(), events, 0};
    const int found = poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (found > 0) {
      return true;
    }
    if (found == 0) {
      errno = ETIMEDOUT;
      return false;
    }
    if (errno != EINTR) {
      return false;
    }
  }
}

std::string describe(const Address& address, std::uint16_t port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), text.data(), text.size());
  return address.v6 ? "[" + std::string(text.data()) + "]:" + std::to_string(port)
                    : std::string(text.data()) + ":" + std::to_string(port);
}

/// Nothing, with errno, if nobody takes the connection.
std::optional<Socket> connect_to(const Address& address, std::uint16_t port,
                                 std::chrono::milliseconds patience) {
  Socket socket(
      ::socket(address.v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  v6.sin6_family = AF_INET6;
  v4.sin_family = AF_INET;
  v6.sin6_port = v4.sin_port = htons(port);
  std::memcpy(&v6.sin6_addr, address.bytes.data(), sizeof(v6.sin6_addr));
  std::memcpy(&v4.sin_addr, address.bytes.data(), sizeof(v4.sin_addr));
  const auto* to =
      address.v6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  if (socket.number() < 0) {
    return std::nullopt;
  }
  if (connect(socket.number(), to, address.v6 ? sizeof(v6) : sizeof(v4)) != 0) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (errno != EINPROGRESS || !ready(socket, POLLOUT, Clock::now() + patience) ||
        getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
      errno = error != 0 ? error : errno;
      return std::nullopt;
    }
  }
  return socket;
}

bool send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if ((errno != EAGAIN && errno != EINTR) || !ready(socket, POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

/// The answer, whole; nothing, with errno, if the other side ends before.
std::optional<std::string> receive_answer(const Socket& socket, Clock::time_point deadline) {
  std::string bytes;
  std::array<char, 4096> chunk;
  for (;;) {
    if (bytes.size() >= sizeof(AnswerHead) &&
        bytes.size() >= sizeof(AnswerHead) + head_of<AnswerHead>(bytes).bytes) {
      return bytes;
    }
    const ssize_t got = recv(socket.number(), chunk.data(), chunk.size(), 0);
    if (got > 0) {
      bytes.append(chunk.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      errno = ECONNRESET;
      return std::nullopt;
    } else if ((errno != EAGAIN && errno != EINTR) || !ready(socket, POLLIN, deadline)) {
      return std::nullopt;
    }
  }
}

class MeetingStore final : public Store {
 public:
  MeetingStore(MeetingPoint point, const AddressPatience& patience)
      : point_(std::move(point)),
        address_patience_(patience),
        addresses_(addresses_to_try(point_, host_number())) {}

  std::string name() const override {
    return "the store of the ncclUniqueId at " + describe(addresses_.front(), point_.port);
  }
  void set(const std::string& key, const std::string& value) override {
    ask(Verb::set, key, value, 0ms);
  }
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::milliseconds patience) override {
    const std::string answer = ask(Verb::get, key, {}, patience);
    return head_of<AnswerHead>(answer).found == 0
               ? std::nullopt
               : std::optional(answer.substr(sizeof(AnswerHead)));
  }
  void remove(const std::string& key) override { ask(Verb::remove, key, {}, 0ms); }

 private:
  struct Question {
    Verb verb{};
    const std::string& name;
    const std::string& value;
    Clock::time_point end;  ///< So long a get() waits for the key.
  };

  std::string ask(Verb verb, const std::string& name, const std::string& value,
                  std::chrono::milliseconds patience) {
    const Question question{verb, name, value, Clock::now() + patience};
    std::string tried;
    for (auto address = addresses_.begin(); address != addresses_.end(); ++address) {
      if (auto answer = ask_at(*address, question)) {
        // Later questions go there first, lest each of them wait for addresses that lead nowhere.
        std::rotate(addresses_.begin(), address, address + 1);
        return std::move(*answer);
      }
      tried += (tried.empty() ? "" : ", ") + describe(*address, point_.port) + ": " + reason();
    }
    throw Error(ErrorCode::unavailable,
                "the process that called ncclGetUniqueId does not answer (" + tried +
                    "); it must live until every rank has joined, an id is for one "
                    "communicator, and SPRAT_INTERFACE says by which interfaces it is reached");
  }

  /// Nothing, with errno, if the address does not answer. The time for that begins with the
  /// connection: what an address before has taken is not taken from it.
  std::optional<std::string> ask_at(const Address& address, const Question& question) const {
    const auto socket = connect_to(address, point_.port, address_patience_.connect);
    if (!socket) {
      return std::nullopt;
    }
    const auto left =
        std::max(std::chrono::ceil<std::chrono::milliseconds>(question.end - Clock::now()), 0ms);
    const Clock::time_point deadline = Clock::now() + left + address_patience_.answer;
    std::string request;
    append(request, RequestHead{.magic = request_magic,
                                .verb = question.verb,
                                .name_bytes = static_cast<std::uint16_t>(question.name.size()),
                                .value_bytes = static_cast<std::uint32_t>(question.value.size()),
                                .patience_ms = static_cast<std::uint32_t>(left.count()),
                                .key = point_.key});
    request += question.name + question.value;
    return send_all(*socket, request, deadline) ? receive_answer(*socket, deadline) : std::nullopt;
  }

  const MeetingPoint point_;
  const AddressPatience address_patience_;
  std::vector<Address> addresses_;  ///< In the order in which they are tried.
};

}  // namespace

MeetingPoint open_meeting(const Config& config) {
  static std::mutex mutex;  // guards both
  static MeetingServer* server = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  // A child of fork() has its parent's socket and not its thread.
  if (server == nullptr || owner != getpid()) {
    server = new MeetingServer(config);
    owner = getpid();
  }
  const MeetingPoint point{random_key(), host_number(), server->port(),
                           own_addresses(config.interface)};
  server->add(point.key);
  return point;
}

std::unique_ptr<Store> store_at(const MeetingPoint& point, const AddressPatience& patience) {
  return std::make_unique<MeetingStore>(point, patience);
}

}  // namespace sprat::nccl
