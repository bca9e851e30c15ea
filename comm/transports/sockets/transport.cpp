// The transport between hosts over sockets of our own, as an entry of the table.
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "comm/base/check.hpp"
#include "comm/encryption/job_key.hpp"
#include "comm/host/interfaces.hpp"
#include "comm/transports/sockets/sockets.hpp"
#include "comm/transports/sockets/stream_plan.hpp"
#include "comm/transports/transport_kind.hpp"

namespace sprat::comm {
namespace {

/// An interface that streams go through.
struct SocketRail {
  std::string interface;
  sockets::NetAddress address;
  std::size_t streams = 1;
};

/// All that are named are rails; of those that are not, the best one is used. Throws
/// Error{unavailable}.
std::vector<SocketRail> find_socket_rails(const Config& config) {
  const bool named = !config.interface.empty() && !config.interface.starts_with('^');
  std::vector<SocketRail> rails;
  for (const InterfaceChoice& choice : choose_interfaces(read_interfaces(), config.interface)) {
    if (!choice.chosen || (!named && !rails.empty())) {
      continue;
    }
    for (const std::string& text : choice.interface.addresses) {
      if (const auto address = sockets::parse_address(text, 0)) {
        rails.push_back({.interface = choice.interface.name,
                         .address = *address,
                         .streams = sockets::streams_for(choice.interface.speed_mbit_s)});
        break;
      }
    }
  }
  need(!rails.empty(), "no interface that SPRAT_INTERFACE=\"", config.interface,
       "\" allows has an address for sockets: see ip -br addr");
  return rails;
}

/// Whether this host has a network that programs reach without the kernel, such as efa: each of its
/// devices has an entry there. libfabric is for those. On plain TCP ours are faster, and nothing
/// that nobody receives is in another message's way.
bool has_rdma_devices() noexcept {
  std::error_code none;
  return std::filesystem::directory_iterator("/sys/class/infiniband", none) !=
         std::filesystem::directory_iterator();
}

bool sockets_are_available(const Config& config) {
  // libfabric's wires are not encrypted.
  return config.provider == "sockets" ||
         (config.provider.empty() && (config.encrypt || !has_rdma_devices()));
}

std::unique_ptr<MessageTransport> open_sockets(const TransportOptions& options) {
  sockets::SocketsOptions sockets{.rank = options.rank,
                                  .size = options.size,
                                  .rails = {},
                                  .streams_a_rail = 1,
                                  .ports = options.config.ports};
  if (encryption_of(options.config) == Encryption::on) {
    sockets.encryption =
        TlsContext::make(sockets::stream_encryption(job_key(options.config.token, KeyUse::data)));
  }
  for (const SocketRail& rail : find_socket_rails(options.config)) {
    sockets.rails.push_back(rail.address);
    sockets.streams_a_rail = std::max(sockets.streams_a_rail, rail.streams);
  }
  return std::make_unique<sockets::Sockets>(std::move(sockets));
}

std::string describe_sockets(const Config& config) {
  const bool encrypted = encryption_of(config) == Encryption::on;
  std::string out;
  for (const SocketRail& rail : find_socket_rails(config)) {
    out +=
        text(out.empty() ? "sockets of Sprat's own on " : ", ", rail.interface, " (", rail.streams,
             rail.streams == 1 ? " stream to each peer)" : " streams to each peer)");
  }
  return out + (encrypted ? ", encrypted: TLS 1.3, not by the kernel" : "");
}

}  // namespace

extern const TransportKind sockets_transport;
const TransportKind sockets_transport = {
    .name = "sockets",
    .summary = "TCP sockets of our own, where a host has no efa or the like",
    .scope = TransportKind::Scope::network,
    .available = &sockets_are_available,
    .control_bytes = [](std::size_t) { return std::size_t{0}; },
    .open = &open_sockets,
    .describe = &describe_sockets};

}  // namespace sprat::comm
