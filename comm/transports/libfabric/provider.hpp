// Which of libfabric's providers carries the messages, on which interface.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/interfaces.hpp"
#include "comm/transports/libfabric/handles.hpp"

namespace sprat::comm::libfabric {

/// One of fi_getinfo's answers, in the respects that we choose by.
struct Offer {
  std::string provider;  ///< "tcp;ofi_rxm"
  std::string domain;    ///< The interface, where the provider stands on IP.
  std::string address;   ///< Numeric, where the provider stands on IP; else empty.
  int tag_bits = 0;
};

/// Pure. The index of the best offer. `wish` is Config::provider: a provider ("tcp" also means
/// "tcp;ofi_rxm"), or empty for efa, else tcp;ofi_rxm, else any that reaches other hosts. Of offers
/// on IP only those on a chosen interface count, in the interfaces' order.
std::optional<std::size_t> choose_offer(std::span<const Offer> offers, std::string_view wish,
                                        std::span<const InterfaceChoice> interfaces);

/// For people: the providers that fi_getinfo offers, "tcp;ofi_rxm on eth0 (192.0.2.1)".
std::vector<std::string> describe_offers();

/// Asks fi_getinfo and chooses. Throws Error{unavailable} listing what was offered.
Info find_provider(std::string_view wish, std::string_view interface_wish);

/// Lets an endpoint listen on this port. False if the provider does not stand on IP.
bool set_port(fi_info& info, int port);

}  // namespace sprat::comm::libfabric
