// The network interfaces of this host, and which of them Sprat speaks through, and why.
#include "comm/host/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "comm/base/check.hpp"

namespace sprat::comm {

namespace {

constexpr std::string_view blanks = " \t";

std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    name.remove_prefix(std::min(name.find_first_not_of(blanks), name.size()));
    name = name.substr(0, name.find_last_not_of(blanks) + 1);
    if (!name.empty()) {
      names.emplace_back(name);
    }
  }
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Why an interface cannot carry anything; empty if it can.
std::string defect(const Interface& one) {
  if (!one.up) {
    return "it is down";
  }
  return one.addresses.empty() ? "it has no address that others could reach" : "";
}

/// Bridges that container and machine managers make for themselves lead to no other host.
bool is_private_bridge(const std::string& name) {
  constexpr std::array prefixes = {"docker", "virbr", "lxcbr", "lxdbr", "podman", "cni", "br-"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&name](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<InterfaceChoice> choose_named(std::span<const Interface> interfaces,
                                          const std::vector<std::string>& names) {
  // Named interfaces keep the order of their names: the first one is the user's first choice.
  std::vector<InterfaceChoice> chosen, dropped;
  for (const std::string& name : names) {
    for (const Interface& one : interfaces) {
      if (one.name == name && defect(one).empty()) {
        chosen.push_back({one, true, "it is named by SPRAT_INTERFACE"});
      }
    }
  }
  for (const Interface& one : interfaces) {
    if (!contains(names, one.name)) {
      dropped.push_back({one, false, "SPRAT_INTERFACE does not name it"});
    } else if (!defect(one).empty()) {
      dropped.push_back({one, false, "SPRAT_INTERFACE names it, but " + defect(one)});
    }
  }
  chosen.insert(chosen.end(), dropped.begin(), dropped.end());
  return chosen;
}

std::string speed_reason(const Interface& one) {
  return one.speed_mbit_s > 0 ? text("it is up, ", one.speed_mbit_s, " Mbit/s") : "it is up";
}

std::vector<InterfaceChoice> choose_others(std::span<const Interface> interfaces,
                                           const std::vector<std::string>& excluded) {
  std::vector<InterfaceChoice> chosen, loopbacks, dropped;
  for (const Interface& one : interfaces) {
    if (contains(excluded, one.name)) {
      dropped.push_back({one, false, "SPRAT_INTERFACE excludes it"});
    } else if (!defect(one).empty()) {
      dropped.push_back({one, false, defect(one)});
    } else if (one.loopback) {
      loopbacks.push_back({one, false, "it is the loopback, and there are others"});
    } else if (is_private_bridge(one.name)) {
      dropped.push_back({one, false, "it is a bridge inside this host; name it to use it"});
    } else {
      chosen.push_back({one, true, speed_reason(one)});
    }
  }
  // On a host without a network its ranks can still reach each other.
  if (chosen.empty()) {
    for (InterfaceChoice& one : loopbacks) {
      one.chosen = true;
      one.reason = "there is no other: ranks on other hosts cannot be reached";
    }
  }
  // The fastest interface first. Those of equal or unknown speed keep the order of the system.
  std::stable_sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
    return a.interface.speed_mbit_s > b.interface.speed_mbit_s;
  });
  chosen.insert(chosen.end(), loopbacks.begin(), loopbacks.end());
  chosen.insert(chosen.end(), dropped.begin(), dropped.end());
  return chosen;
}

/// A number from a file of one line; 0 if there is none or it is negative.
int number_in(const std::string& path) {
  std::ifstream file(path);
  int value = 0;
  return file >> value && value > 0 ? value : 0;
}

std::optional<std::string> numeric_address(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> out{};
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, out.data(), out.size());
    return out.data();
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address, sizeof v6);
    // A link-local address means something only together with an interface of this host, so it is
    // of no use to others.
    if (!IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) {
      inet_ntop(AF_INET6, &v6.sin6_addr, out.data(), out.size());
      return out.data();
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<InterfaceChoice> choose_interfaces(std::span<const Interface> interfaces,
                                               std::string_view wish) {
  const bool excludes = wish.starts_with('^');
  const std::vector<std::string> names = split_names(excludes ? wish.substr(1) : wish);
  require(wish.empty() || !names.empty(), "SPRAT_INTERFACE is \"", wish,
          "\"; it must be a comma list of interfaces, after a ^ of those to leave out");
  auto choices = excludes || names.empty() ? choose_others(interfaces, names)
                                           : choose_named(interfaces, names);
  if (choices.empty() || !choices.front().chosen) {
    std::string have;
    for (const InterfaceChoice& one : choices) {
      have += text("\n  ", one.interface.name, ": ", one.reason);
    }
    need(false, "no network interface is usable with SPRAT_INTERFACE=\"", wish,
         "\":", have.empty() ? " this host has none" : have);
  }
  return choices;
}

std::vector<Interface> read_interfaces() {
  ifaddrs* list = nullptr;
  const bool listed = getifaddrs(&list) == 0;
  need(listed, "cannot list network interfaces: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);

  std::vector<Interface> interfaces;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    // getifaddrs() lists an interface once for each of its addresses.
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [at](const Interface& one) { return one.name == at->ifa_name; });
    if (found == interfaces.end()) {
      const std::string folder = text("/sys/class/net/", at->ifa_name);
      interfaces.push_back(
          {.name = at->ifa_name,
           .addresses = {},
           .up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0,
           .loopback = (at->ifa_flags & IFF_LOOPBACK) != 0,
           .speed_mbit_s = number_in(folder + "/speed")});
      found = interfaces.end() - 1;
    }
    // An interface without any address is listed once, with a null one.
    if (at->ifa_addr == nullptr) {
      continue;
    }
    if (auto address = numeric_address(*at->ifa_addr)) {
      found->addresses.push_back(std::move(*address));
    }
  }
  for (Interface& one : interfaces) {
    std::stable_partition(
        one.addresses.begin(), one.addresses.end(),
        [](const std::string& address) { return address.find(':') == std::string::npos; });
  }
  return interfaces;
}

}  // namespace sprat::comm
