#include "tests/unit/plugins/nccl_net/played_net.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace sprat::nccl_net {
namespace {

using namespace std::chrono_literals;

/// Far more than anything here takes, sanitizers on a busy machine included.
constexpr auto patience = 60s;

template <class Table, int number, class Size>
std::unique_ptr<PlayedNet> play() {
  auto* table = static_cast<Table*>(plugin_symbol("ncclNetPlugin_v" + std::to_string(number)));
  return table == nullptr ? nullptr : std::make_unique<Played<Table, number, Size>>(*table);
}

/// The messages of a seed: parts of one pattern, so that a million of them need not be made. Six of
/// seven are short, so that time goes into messages more than into their bytes.
class ManyMessages {
 public:
  static constexpr std::size_t most_bytes = 20'000;

  explicit ManyMessages(unsigned seed)
      : seed_(seed), pattern_(pattern(most_bytes + places, seed)) {}
  std::span<const std::byte> operator[](std::size_t number) const {
    const std::size_t most = number % 7 == 0 ? most_bytes : most_of_short;
    return std::span(pattern_).subspan((number * 13) % places, (number * 7919 + seed_ * 31) % most);
  }

 private:
  static constexpr std::size_t places = 4096, most_of_short = 509;
  std::size_t seed_;
  std::vector<std::byte> pattern_;
};

}  // namespace

std::string& last_line() {
  static std::string line;
  return line;
}

void keep_line(LogLevel level, unsigned long, const char*, int, const char* format, ...) {
  if (level != LogLevel::warn) {
    return;
  }
  std::array<char, 512> text{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  last_line() = text.data();
}

void* plugin_symbol(const std::string& name) {
  static void* const library = [] {
    void* opened = dlopen(SPRAT_NCCL_NET, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      throw std::runtime_error(dlerror());
    }
    return opened;
  }();
  return dlsym(library, name.c_str());
}

std::unique_ptr<PlayedNet> play_net(int version) {
  switch (version) {
    case 12:
      return play<NetV12, 12, std::size_t>();
    case 11:
      return play<NetV11, 11, std::size_t>();
    case 10:
      return play<NetV10, 10, std::size_t>();
    case 9:
      return play<NetV9, 9, std::size_t>();
    case 8:
      return play<NetV8, 8, int>();
    case 7:
      return play<NetV7, 7, int>();
    case 6:
      return play<NetV6, 6, int>();
    default:
      return nullptr;
  }
}

std::vector<int> net_versions() {
  return {
#define SPRAT_NET_VERSION(number) number,
#include "plugins/nccl_net/net_versions.def"
  };
}

void poll_until(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) {
      throw std::runtime_error("nothing came of it within a minute");
    }
    std::this_thread::yield();
  }
}

Pair join(PlayedNet& net, void* listener, Handle handle) {
  Pair pair;
  poll_until([&] {
    pair.sender = pair.sender == nullptr ? net.connect(handle) : pair.sender;
    pair.receiver = pair.receiver == nullptr ? net.accept(listener) : pair.receiver;
    return pair.sender != nullptr && pair.receiver != nullptr;
  });
  return pair;
}

Pair join(PlayedNet& net) {
  Handle handle;
  void* listener = net.listen(handle);
  const Pair pair = join(net, listener, handle);
  net.close_listen(listener);
  return pair;
}

void close(PlayedNet& net, Pair pair) {
  net.close_send(pair.sender);
  net.close_recv(pair.receiver);
}

std::vector<int> finish(PlayedNet& net, void* request, std::size_t messages) {
  std::vector<int> bytes(messages, -1);
  poll_until([&] {
    int done = 0;
    check("test", net.test(request, &done, bytes.data()));
    return done == 1;
  });
  return bytes;
}

void* send_now(PlayedNet& net, void* comm, const void* data, std::size_t bytes, int tag) {
  void* request = nullptr;
  poll_until([&] { return (request = net.isend(comm, data, bytes, tag)) != nullptr; });
  return request;
}

void* receive_now(PlayedNet& net, void* comm, std::span<const PlayedReceive> receives) {
  void* request = nullptr;
  poll_until([&] { return (request = net.irecv(comm, receives)) != nullptr; });
  return request;
}

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t at = 0; at < bytes; ++at) {
    out[at] = static_cast<std::byte>((at * 31 + at / 251 + seed * 17) & 0xff);
  }
  return out;
}

void send_many(PlayedNet& net, void* sender, unsigned seed, std::size_t messages) {
  const ManyMessages sent(seed);
  std::array<void*, most_requests> requests{};
  for (std::size_t at = 0; at < messages + requests.size(); ++at) {
    void*& request = requests[at % requests.size()];
    if (request != nullptr) {
      finish(net, request);
    }
    if (at < messages) {
      request = send_now(net, sender, sent[at].data(), sent[at].size(), 1);
    }
  }
}

std::size_t receive_many(PlayedNet& net, void* receiver, unsigned seed, std::size_t messages) {
  const ManyMessages sent(seed);
  struct Slot {
    std::vector<std::byte> room = std::vector<std::byte>(ManyMessages::most_bytes);
    void* request = nullptr;
  };
  std::vector<Slot> slots(most_requests);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < messages + slots.size(); ++at) {
    Slot& slot = slots[at % slots.size()];
    if (slot.request != nullptr) {
      const auto wanted = sent[at - slots.size()];
      const auto bytes = static_cast<std::size_t>(finish(net, slot.request)[0]);
      // Sanitizers look at memcmp() once and at a loop byte by byte.
      const bool right =
          bytes == wanted.size() && std::memcmp(slot.room.data(), wanted.data(), bytes) == 0;
      wrong += right ? 0 : 1;
    }
    if (at < messages) {
      const PlayedReceive receive{slot.room.data(), slot.room.size(), 1};
      slot.request = receive_now(net, receiver, {&receive, 1});
    }
  }
  return wrong;
}

}  // namespace sprat::nccl_net
