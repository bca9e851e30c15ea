#include "comm/endpoint/devices.hpp"

#include <cctype>
#include <filesystem>
#include <system_error>

#include "comm/base/check.hpp"
#include "comm/host/interfaces.hpp"
#include "comm/transports/sockets/stream_plan.hpp"

namespace sprat::comm::endpoint {
namespace {

/// dddd:dd:dd.d, all hexadecimal; domains may have more digits.
bool is_pci_address(std::string_view part) {
  constexpr std::string_view shape = ":xx:xx.x";
  if (part.size() < 4 + shape.size()) {
    return false;
  }
  const std::string_view domain = part.substr(0, part.size() - shape.size());
  const std::string_view rest = part.substr(domain.size());
  const auto digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (const char c : domain) {
    if (!digit(c)) {
      return false;
    }
  }
  for (std::size_t at = 0; at < shape.size(); ++at) {
    if (shape[at] == 'x' ? !digit(rest[at]) : rest[at] != shape[at]) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> pci_path_of(const std::string& interface) {
  std::error_code none;
  const auto path = std::filesystem::canonical("/sys/class/net/" + interface + "/device", none);
  return none ? std::nullopt : pci_part(path.string());
}

}  // namespace

std::optional<std::string> pci_part(std::string_view path) {
  for (std::size_t end = path.size(); end != std::string_view::npos && end > 0;) {
    const std::size_t slash = path.rfind('/', end - 1);
    const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
    if (is_pci_address(path.substr(begin, end - begin))) {
      return std::string(path.substr(0, end));
    }
    end = slash;
  }
  return std::nullopt;
}

std::vector<Device> find_devices(const Config& config) {
  std::vector<Device> devices;
  for (const InterfaceChoice& choice : choose_interfaces(read_interfaces(), config.interface)) {
    if (!choice.chosen) {
      continue;
    }
    // The first address alone: all of an interface's lead over the same wire.
    for (const std::string& text : choice.interface.addresses) {
      if (const auto address = sockets::parse_address(text, 0)) {
        devices.push_back({.interface = choice.interface.name,
                           .address = *address,
                           .speed_mbit_s = choice.interface.speed_mbit_s,
                           .streams = sockets::streams_for(choice.interface.speed_mbit_s),
                           .pci_path = pci_path_of(choice.interface.name)});
        break;
      }
    }
  }
  need(!devices.empty(), "no interface that SPRAT_INTERFACE=\"", config.interface,
       "\" allows has an address for sockets: see ip -br addr");
  return devices;
}

}  // namespace sprat::comm::endpoint
