#include "comm/survival/address_book.hpp"

#include <map>

namespace sprat::comm {

AddressBook::AddressBook(const std::vector<std::vector<SocketAddress>>& by_rank) {
  std::map<std::string, std::uint32_t> places;  // in hosts_
  for (const auto& addresses : by_rank) {
    for (const SocketAddress& address : addresses) {
      const auto [place, is_new] =
          places.try_emplace(address.host, static_cast<std::uint32_t>(hosts_.size()));
      if (is_new) {
        hosts_.push_back(address.host);
      }
      entries_.push_back({place->second, address.port});
    }
    ends_.push_back(static_cast<std::uint32_t>(entries_.size()));
  }
}

std::vector<SocketAddress> AddressBook::of(int rank) const {
  const auto place = static_cast<std::size_t>(rank);
  std::vector<SocketAddress> addresses;
  for (std::uint32_t at = place == 0 ? 0 : ends_[place - 1]; at < ends_[place]; ++at) {
    addresses.push_back({hosts_[entries_[at].host], entries_[at].port});
  }
  return addresses;
}

}  // namespace sprat::comm
