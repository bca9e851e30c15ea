// Every way in which messages travel between hosts, for tests that hold all of them to one
// contract: ranks of this process, joined over the loopback.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "comm/transports/libfabric/libfabric.hpp"
#include "comm/transports/libfabric/messages.hpp"
#include "comm/transports/libfabric/provider.hpp"
#include "comm/transports/libfabric/rails.hpp"
#include "comm/transports/sockets/sockets.hpp"
#include "comm/transports/transport.hpp"
#include "sprat/config.hpp"

namespace sprat::comm {

struct WireKind {
  const char* name;
  /// What it is by nature: two of libfabric 1.17's providers, or our sockets.
  bool is_ours;
  std::unique_ptr<MessageTransport> (*open)(int rank, int size);
};

template <int rails>
std::unique_ptr<MessageTransport> open_libfabric_rails(const char* provider, int rank, int size) {
  std::vector<std::unique_ptr<libfabric::Messages>> opened;
  for (int rail = 0; rail < rails; ++rail) {
    libfabric::Info info = std::move(libfabric::find_rails(provider, "lo").front());
    opened.push_back(
        std::make_unique<libfabric::Messages>(std::move(info), PortRange{}, rank, size));
  }
  return std::make_unique<libfabric::Rails>(std::move(opened), rank);
}

/// Each rail has an address of its own on the loopback.
inline std::unique_ptr<MessageTransport> open_sockets_on(int rank, int size, int rails,
                                                         std::size_t streams_a_rail,
                                                         bool encrypted = false) {
  sockets::SocketsOptions options{
      .rank = rank, .size = size, .rails = {}, .streams_a_rail = streams_a_rail};
  if (encrypted) {
    // Few records a key, so that tests send more.
    auto encryption = sockets::stream_encryption(job_key("a token of tests", KeyUse::data));
    encryption.records_a_key = 16;
    options.encryption = TlsContext::make(encryption);
  }
  constexpr std::array addresses = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
  for (int rail = 0; rail < rails; ++rail) {
    options.rails.push_back(*sockets::parse_address(addresses[static_cast<std::size_t>(rail)], 0));
  }
  return std::make_unique<sockets::Sockets>(std::move(options));
}

inline const std::vector<WireKind>& all_wires() {
  static const std::vector<WireKind> wires = {
      {"libfabric's tcp", false,
       [](int rank, int size) { return open_libfabric_rails<1>("tcp", rank, size); }},
      {"libfabric's net", false,
       [](int rank, int size) { return open_libfabric_rails<1>("net", rank, size); }},
      {"libfabric's net over two rails", false,
       [](int rank, int size) { return open_libfabric_rails<2>("net", rank, size); }},
      {"sockets", true, [](int rank, int size) { return open_sockets_on(rank, size, 1, 1); }},
      {"sockets of three streams", true,
       [](int rank, int size) { return open_sockets_on(rank, size, 1, 3); }},
      {"sockets over two rails", true,
       [](int rank, int size) { return open_sockets_on(rank, size, 2, 1); }},
      {"encrypted sockets", true,
       [](int rank, int size) { return open_sockets_on(rank, size, 1, 1, true); }},
      {"encrypted sockets over two rails", true,
       [](int rank, int size) { return open_sockets_on(rank, size, 2, 1, true); }},
  };
  return wires;
}

/// Ranks 0..size-1, connected.
class Wires {
 public:
  Wires(const WireKind& kind, int size) {
    std::vector<Blob> addresses;
    for (int rank = 0; rank < size; ++rank) {
      wires_.push_back(kind.open(rank, size));
      addresses.push_back(wires_.back()->address());
    }
    for (const auto& wire : wires_) {
      wire->connect(addresses);
    }
  }
  MessageTransport& operator[](int rank) { return *wires_[static_cast<std::size_t>(rank)]; }
  void vanish(int rank) { wires_[static_cast<std::size_t>(rank)].reset(); }
  void drive(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (const auto& wire : wires_) {
        if (wire) {
          wire->progress();
        }
      }
    }
  }
  /// Drives every rank until `done` holds; false after 20 s without it.
  bool drive_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      drive(1);
    }
    return done();
  }
  bool drive_until_ended(std::initializer_list<const MessageRequest*> requests) {
    return drive_until([&] {
      return std::all_of(requests.begin(), requests.end(), [](const MessageRequest* one) {
        return one->state != MessageRequest::State::posted;
      });
    });
  }

 private:
  std::vector<std::unique_ptr<MessageTransport>> wires_;
};

}  // namespace sprat::comm
