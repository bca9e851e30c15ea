// What this host has to speak through: one device for each network interface that is chosen.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transports/sockets/contact.hpp"
#include "sprat/config.hpp"

namespace sprat::comm::endpoint {

struct Device {
  std::string interface;
  sockets::NetAddress address;  ///< Port 0.
  int speed_mbit_s = 0;         ///< 0: nobody knows.
  std::size_t streams = 1;      ///< That a connection of this device is worth.
  /// Of the card in /sys; nothing if the interface is none of a PCI device.
  std::optional<std::string> pci_path;
};

/// All interfaces that Config::interface allows, the best first; the loopback where there is no
/// other. Throws Error{unavailable} if none is left.
std::vector<Device> find_devices(const Config& config);

/// Pure. The PCI device in the path of a device in /sys, which may lie below it as virtio's do:
/// up to and with the last part like 0000:00:1f.6. Nothing if there is none.
std::optional<std::string> pci_part(std::string_view path);

}  // namespace sprat::comm::endpoint
