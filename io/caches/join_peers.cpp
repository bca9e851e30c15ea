// Each process opens its socket before it tells where, so nobody connects in vain.
#include "io/caches/join_peers.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "io/caches/socket_peers.hpp"

namespace sprat::io {
namespace {

/// 128 random bits as text.
std::string random_text() {
  std::array<std::uint8_t, 16> random{};
  need(::getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()),
       "the system gives no random numbers: ", std::strerror(errno));
  std::string text;
  for (const std::uint8_t byte : random) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

PeerAddress address_of(const nlohmann::json& told) {
  return {.name = told.at("name").get<std::string>(),
          .address = told.at("address").get<std::string>(),
          .port = told.at("port").get<std::uint16_t>()};
}

}  // namespace

std::shared_ptr<BlockPeers> join_peers(const JoinPeers& request) {
  PeerListener listener(request.address);
  // Each host gives a part of the secret, so it is fresh if one of them is honest, and no host has
  // a part of its own to play.
  const std::string mine = nlohmann::json{
      {"name", request.name},
      {"address", request.address},
      {"port", listener.port()},
      {"secret",
       random_text()}}.dump();
  const std::vector<std::string> texts = request.gather(mine);
  SocketPeersOptions options;
  for (std::size_t host = 0; host < texts.size(); ++host) {
    try {
      const nlohmann::json told = nlohmann::json::parse(texts[host]);
      options.hosts.push_back(address_of(told));
      options.secret += told.at("secret").get<std::string>();
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorCode::unavailable,
                  text("host ", host, " of ", texts.size(),
                       " that share blocks does not say where it listens: ", reason_of(error)));
    }
  }
  const auto found = std::ranges::find(texts, mine);
  need(found != texts.end(), "host ", request.name, " is not among the ", texts.size(),
       " that share blocks: the gather has lost its text");
  options.here = static_cast<std::size_t>(found - texts.begin());
  return std::make_shared<SocketPeers>(std::move(listener), std::move(options));
}

}  // namespace sprat::io
