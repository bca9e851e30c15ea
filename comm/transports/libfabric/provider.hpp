// Which of libfabric's providers carries the messages, on which interface.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/host/interfaces.hpp"
#include "comm/transports/libfabric/handles.hpp"

namespace sprat::comm::libfabric {

/// One of fi_getinfo's answers, in the respects that we choose by.
struct Offer {
  std::string provider;  ///< "tcp;ofi_rxm"
  std::string domain;    ///< The interface, where the provider stands on IP.
  std::string address;   ///< Numeric, where the provider stands on IP; else empty.
  int tag_bits = 0;
};

/// Config::provider of who wants libfabric, and leaves the choice to it.
inline constexpr std::string_view any_provider = "libfabric";

/// Pure. The indices of the best offers, one for each rail; none if none fits. `wish` is
/// Config::provider: a provider ("tcp" also means "tcp;ofi_rxm"), or any_provider or
/// empty for efa, else net, else tcp;ofi_rxm, else any that reaches other hosts. Of offers on IP
/// only those on a chosen interface count, in the interfaces' order; each of the first `rails` that
/// has one is a rail.
std::vector<std::size_t> choose_offers(std::span<const Offer> offers, std::string_view wish,
                                       std::span<const InterfaceChoice> interfaces,
                                       std::size_t rails);

/// For people: "tcp;ofi_rxm on eth0, eth1".
std::string describe_rails(std::span<const Info> rails);

/// For people: the providers that fi_getinfo offers, "tcp;ofi_rxm on eth0 (192.0.2.1)".
std::vector<std::string> describe_offers();

/// Asks fi_getinfo and chooses; several rails only where the wish names several interfaces. Throws
/// Error{unavailable} listing what was offered.
std::vector<Info> find_rails(std::string_view wish, std::string_view interface_wish);

/// What a thread can sleep on until a provider has completions.
enum class Wakeup {
  none,        ///< Nothing, or nothing that is worth it.
  descriptor,  ///< The queue's own: FI_WAIT_FD, and fi_trywait() before each sleep.
  wait_set     ///< That of a wait set: FI_WAIT_SET, and fi_wait() that does not wait.
};
/// Pure. `version` is fi_version().
Wakeup wakeup_of(std::string_view provider, std::uint32_t version) noexcept;

/// One of libfabric's error numbers, which go beyond errno's, as one of errno's.
int to_errno(int error);

/// Lets an endpoint listen on this port. False if the provider does not stand on IP.
bool set_port(fi_info& info, int port);

}  // namespace sprat::comm::libfabric
