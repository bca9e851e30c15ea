// The network interfaces of this host, and which of them Sprat speaks through, and why.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::comm {

struct Interface {
  std::string name;
  std::vector<std::string> addresses;  ///< Numeric; IPv4 before IPv6, no link-local ones.
  bool up = false;
  bool loopback = false;
  int speed_mbit_s = 0;  ///< 0: unknown.
};

/// One interface and what was decided about it, for people.
struct InterfaceChoice {
  Interface interface;
  bool chosen = false;
  std::string reason;
};

/// Pure. Every interface, the chosen ones first and the best of them foremost. `wish` is
/// Config::interface: names to take in that order, or with a leading ^ names to leave out.
/// Throws Error{unavailable} if a wish leaves none, Error{invalid_argument} if it makes no sense.
std::vector<InterfaceChoice> choose_interfaces(std::span<const Interface> interfaces,
                                               std::string_view wish);

/// What this host has now. Throws Error{unavailable}.
std::vector<Interface> read_interfaces();

}  // namespace sprat::comm
