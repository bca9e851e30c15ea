#include "comm/bootstrap/bootstrap_place.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "comm/base/check.hpp"
#include "comm/host/interfaces.hpp"

namespace sprat::comm {
namespace {

constexpr std::string_view first_line = "sprat rendezvous 1";
constexpr std::size_t most_addresses = 256;
/// Every rank probes each port where rank 0 may listen, so their number is bounded.
constexpr int most_probes = 64;

std::vector<int> numbers(int first, int last) {
  std::vector<int> all(last - first + 1);
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// Ranks that know only an address. The default token is made of what everybody can know: it tells
/// jobs apart and is no secret, which is why trust() asks for more.
class AddressPlace final : public BootstrapPlace {
 public:
  AddressPlace(const Config& config, const Launch& launch)
      : name_(launch.rendezvous),
        size_(launch.size),
        address_(parse_address(std::string_view(launch.rendezvous).substr(6), launch.rendezvous)),
        ports_(ports_at(address_, launch, config.ports)),
        token_(config.token.empty() ? text("sprat port ", address_.port, " job ", launch.job)
                                    : config.token),
        trust_(!config.token.empty() ? Trust::proof
               : launch.ports > 1    ? Trust::launcher
                                     : Trust::this_user) {}

  std::string name() const override { return name_; }
  int size() const override { return size_; }
  Server server() const override { return {}; }
  std::vector<int> ports() const override { return ports_; }
  std::string token() const override { return token_; }
  Trust trust() const override { return trust_; }
  void publish(int) override {}
  Found look_up(std::chrono::steady_clock::time_point) override {
    Contact contact{{}, token_};
    for (const int port : ports_) {
      contact.addresses.push_back({address_.host, port});
    }
    return {contact, ""};
  }

 private:
  /// An address that someone has typed is used as it is, and must lie within SPRAT_PORTS. Of a
  /// launcher's address only the host counts: its port was chosen without regard to SPRAT_PORTS.
  static std::vector<int> ports_at(const SocketAddress& address, const Launch& launch,
                                   PortRange range) {
    if (launch.ports > 1 && !range.any()) {
      return numbers(range.first, std::min(range.last, range.first + most_probes - 1));
    }
    require(range.any() || (address.port >= range.first && address.port <= range.last),
            "the ranks meet at ", launch.rendezvous, ", which is outside SPRAT_PORTS=", range.first,
            "-", range.last, "; give a port inside of it");
    return numbers(address.port, std::min(address.port + launch.ports - 1, 65535));
  }

  std::string name_;
  int size_;
  SocketAddress address_;
  std::vector<int> ports_;
  std::string token_;
  Trust trust_;
};

}  // namespace

SocketAddress parse_address(std::string_view text, std::string_view source) {
  const bool bracketed = text.starts_with('[');
  const std::size_t host_end = bracketed ? text.find(']') : text.rfind(':');
  SocketAddress address;
  if (host_end != text.npos) {
    address.host = text.substr(bracketed, host_end - bracketed);
    std::string_view port = text.substr(host_end + bracketed);
    if (port.starts_with(':')) {
      port.remove_prefix(1);
      const auto [end, error] =
          std::from_chars(port.data(), port.data() + port.size(), address.port);
      if (error != std::errc{} || end != port.data() + port.size()) {
        address.port = 0;
      }
    }
  }
  require(!address.host.empty() && address.port > 0 && address.port < 1 << 16, source, ": \"", text,
          "\" is not host:port with a port from 1 to 65535");
  require(bracketed || address.host.find(':') == address.host.npos, source,
          ": an IPv6 address stands in brackets, as in tcp://[::1]:29500");
  return address;
}

std::string write_contact(const Contact& contact) {
  std::string out = text(first_line, "\ntoken ", contact.token, "\n");
  for (const SocketAddress& address : contact.addresses) {
    out += text("door ", address.port, " ", address.host, "\n");
  }
  return out + "end\n";
}

std::optional<Contact> read_contact(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string line;
  if (!std::getline(in, line) || line != first_line) {
    return std::nullopt;
  }
  Contact contact;
  while (std::getline(in, line)) {
    if (line == "end") {
      return contact;
    }
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "token") {
      contact.token = line.substr(std::min<std::size_t>(6, line.size()));
    } else if (word == "door" && contact.addresses.size() < most_addresses) {
      SocketAddress address;
      words >> address.port >> address.host;
      if (!words || address.port <= 0 || address.port >= 1 << 16) {
        return std::nullopt;
      }
      contact.addresses.push_back(std::move(address));
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;  // without "end" it may be cut short, as while it is written
}

std::vector<int> free_ports(const Config& config) {
  return numbers(config.ports.first, config.ports.last);
}

std::vector<SocketAddress> addresses_of_this_host(const Config& config, int port) {
  std::vector<SocketAddress> addresses, loopbacks;
  for (const InterfaceChoice& one : choose_interfaces(read_interfaces(), config.interface)) {
    if (!one.chosen && !(one.interface.loopback && one.interface.up)) {
      continue;
    }
    for (const std::string& address : one.interface.addresses) {
      (one.interface.loopback ? loopbacks : addresses).push_back({address, port});
    }
  }
  // The loopback comes last: it reaches rank 0 only from its own host, and on another host it may
  // reach somebody else.
  addresses.insert(addresses.end(), loopbacks.begin(), loopbacks.end());
  return addresses;
}

std::unique_ptr<BootstrapPlace> bootstrap_at_address(const Config& config, const Launch& launch) {
  return std::make_unique<AddressPlace>(config, launch);
}

std::unique_ptr<BootstrapPlace> find_bootstrap_place(const Config& config, const Launch& launch) {
  const std::string_view address = launch.rendezvous;
  if (address.starts_with("tcp://")) {
    return bootstrap_at_address(config, launch);
  }
  if (address.starts_with("file://")) {
    return bootstrap_at_file(config, launch);
  }
  if (address.starts_with("pmix://")) {
    return bootstrap_by_pmix(config, launch);
  }
  throw Error(ErrorCode::invalid_argument, text("SPRAT_RENDEZVOUS is \"", address,
                                                "\"; it must be tcp://host:port or file://path"));
}

}  // namespace sprat::comm
