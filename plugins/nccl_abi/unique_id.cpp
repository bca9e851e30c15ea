// The 128 bytes of an ncclUniqueId.
#include "plugins/nccl_abi/unique_id.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>

#include "comm/base/hash.hpp"
#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl {
namespace {

constexpr std::array<char, 8> magic = {'s', 'p', 'r', 'a', 't', 'i', 'd', '1'};

/// The layout. Processes of one job run one build, or at least one byte order: NCCL's own ids are
/// no different.
struct Packed {
  std::array<char, 8> magic;
  Key key;
  std::uint64_t host;
  std::uint16_t port;
  std::uint8_t addresses;
  std::array<std::uint8_t, 5> v6;
  std::array<std::array<std::uint8_t, 16>, most_addresses> bytes;
};
static_assert(sizeof(Packed) <= sizeof(ncclUniqueId));

bool allows(const std::string& chosen, const std::string& name) {
  const bool excludes = chosen.starts_with('^');
  std::istringstream list(chosen.substr(excludes ? 1 : 0));
  bool listed = false;
  for (std::string one; std::getline(list, one, ',');) {
    listed = listed || one == name;
  }
  return chosen.empty() || listed != excludes;
}

}  // namespace

ncclUniqueId pack(const MeetingPoint& point) {
  Packed packed{};
  packed.magic = magic;
  packed.key = point.key;
  packed.host = point.host;
  packed.port = point.port;
  packed.addresses = static_cast<std::uint8_t>(std::min(point.addresses.size(), most_addresses));
  for (std::size_t at = 0; at < packed.addresses; ++at) {
    packed.v6[at] = point.addresses[at].v6 ? 1 : 0;
    packed.bytes[at] = point.addresses[at].bytes;
  }
  ncclUniqueId id{};
  std::memcpy(id.internal, &packed, sizeof(packed));
  return id;
}

MeetingPoint unpack(const ncclUniqueId& id) {
  Packed packed{};
  std::memcpy(&packed, id.internal, sizeof(packed));
  if (packed.magic != magic || packed.addresses > most_addresses) {
    refuse(ncclInvalidArgument,
           "the ncclUniqueId was not made by Sprat's ncclGetUniqueId; all ranks must load "
           "libsprat_nccl.so.2, and the id must reach them whole");
  }
  MeetingPoint point{packed.key, packed.host, packed.port, {}};
  for (std::size_t at = 0; at < packed.addresses; ++at) {
    point.addresses.push_back({packed.v6[at] != 0, packed.bytes[at]});
  }
  return point;
}

Key random_key() {
  Key key;
  // So few bytes come whole, once the system has some at all.
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    throw Error(ErrorCode::unavailable,
                "the system gives no random numbers: " + std::system_category().message(errno));
  }
  return key;
}

// Containers of a host share its boot and mostly not its name, and not its loopback either.
std::uint64_t host_number() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  std::array<char, 256> name{};
  static_cast<void>(gethostname(name.data(), name.size() - 1));
  text += name.data();
  return fnv1a(text);
}

std::vector<Address> own_addresses(const std::string& chosen) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw Error(ErrorCode::unavailable,
                "cannot list network interfaces: " + std::system_category().message(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, freeifaddrs);
  std::vector<Address> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool up = (entry->ifa_flags & IFF_UP) != 0;
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    // Somebody who names the loopback means it; nobody else can be reached by it.
    if (entry->ifa_addr == nullptr || !up || (loopback && chosen.empty()) ||
        !allows(chosen, entry->ifa_name)) {
      continue;
    }
    Address address;
    if (entry->ifa_addr->sa_family == AF_INET) {
      sockaddr_in v4{};
      std::memcpy(&v4, entry->ifa_addr, sizeof(v4));
      std::memcpy(address.bytes.data(), &v4.sin_addr, 4);
      addresses.insert(addresses.begin() + std::ranges::count(addresses, false, &Address::v6),
                       address);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 v6{};
      std::memcpy(&v6, entry->ifa_addr, sizeof(v6));
      address.v6 = true;
      std::memcpy(address.bytes.data(), &v6.sin6_addr, 16);
      if (!IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) {
        addresses.push_back(address);
      }
    }
  }
  return addresses;
}

std::vector<Address> addresses_to_try(const MeetingPoint& point, std::uint64_t this_host) {
  std::vector<Address> order;
  if (point.host == this_host || point.addresses.empty()) {
    // Works however strange the host's interfaces are. Another network namespace of the same name
    // has its own loopback: nobody answers there, or somebody who does not know the key, and the
    // next address is tried.
    order.push_back({false, {127, 0, 0, 1}});
  }
  order.insert(order.end(), point.addresses.begin(), point.addresses.end());
  return order;
}

}  // namespace sprat::nccl
