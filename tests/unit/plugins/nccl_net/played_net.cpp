#include "tests/unit/plugins/nccl_net/played_net.hpp"

#include <cstdarg>
#include <cstdio>

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

}  // namespace sprat::nccl_net
