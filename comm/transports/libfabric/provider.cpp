// Which of libfabric's providers carries the messages, on which interface.
#include "comm/transports/libfabric/provider.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "comm/base/check.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::comm::libfabric {

namespace {

/// What every candidate must do: tagged messages from a named peer, in order, without connections.
/// FI_MR_LOCAL, by which this process would register memory itself, is not offered: the
/// registration caches of efa and rxm notice when memory is unmapped, which one of ours could not.
Info make_hints() {
  Info hints(library().dupinfo(nullptr));
  need(hints != nullptr, "out of memory for libfabric");
  // A receive names its sender, so that a stranger's message matches none (docs/security.md).
  hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
  // Whoever holds the context's token drives; no thread of the provider's is needed.
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  return hints;
}

/// ofi_rxm streams messages up to this limit. The receiver reads longer ones from the sender by a
/// request for each, which waits behind all data that goes the same way, so two large messages
/// exchanged take the time of both. Plans cut messages to fit. The buffer size is not raised
/// instead, for it costs 6,144 times itself: 1.6 GB a rank at 256 KiB. A value that the user has
/// set stays.
void make_room_for_chunks() {
  constexpr const char* bytes = "262144";
  static std::once_flag once;
  std::call_once(once, [] { setenv("FI_OFI_RXM_EAGER_LIMIT", bytes, 0); });
}

Info get_info(const fi_info* hints) {
  make_room_for_chunks();
  fi_info* list = nullptr;
  const int status = library().getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &list);
  need(status == 0 || status == -FI_ENODATA,
       "libfabric's fi_getinfo failed: ", library().strerror(-status));
  return Info(list);
}

std::string numeric_address(const fi_info& info) {
  std::array<char, INET6_ADDRSTRLEN> out{};
  if (info.addr_format == FI_SOCKADDR_IN && info.src_addrlen >= sizeof(sockaddr_in)) {
    sockaddr_in v4;
    std::memcpy(&v4, info.src_addr, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, out.data(), out.size());
  } else if (info.addr_format == FI_SOCKADDR_IN6 && info.src_addrlen >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6;
    std::memcpy(&v6, info.src_addr, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, out.data(), out.size());
  }
  return out.data();
}

std::vector<Offer> list_offers(const fi_info* list) {
  std::vector<Offer> offers;
  for (const fi_info* at = list; at != nullptr; at = at->next) {
    offers.push_back({at->fabric_attr->prov_name, at->domain_attr->name, numeric_address(*at),
                      64 - std::countl_zero(at->ep_attr->mem_tag_format)});
  }
  return offers;
}

std::string describe(const Offer& offer) {
  std::string line = text(offer.provider, " on ", offer.domain);
  if (!offer.address.empty()) {
    line += text(" (", offer.address, ")");
  }
  if (offer.tag_bits < tag_bits) {
    line += text(", only ", offer.tag_bits, " bits of tag");
  }
  return line;
}

std::vector<std::string> describe(std::span<const Offer> offers) {
  std::vector<std::string> lines;
  for (const Offer& offer : offers) {
    std::string line = describe(offer);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) {
    all += "\n  " + line;
  }
  return all.empty() ? " nothing" : all;
}

bool is(const Offer& offer, std::string_view provider) {
  return offer.provider == provider || offer.provider == std::string(provider) + ";ofi_rxm";
}

/// The providers to try, best first. libfabric 1.17 has what became tcp in 1.18 under the name of
/// net; its messages need no ofi_rxm.
std::vector<std::string> preferences(std::span<const Offer> offers, std::string_view wish) {
  if (!wish.empty() && wish != any_provider) {
    return {std::string(wish)};
  }
  std::vector<std::string> order = {"efa", "net", "tcp"};
  for (const Offer& offer : offers) {
    if (offer.provider != "shm") {  // it reaches this host only
      order.push_back(offer.provider);
    }
  }
  return order;
}

}  // namespace

bool set_port(fi_info& info, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (info.addr_format == FI_SOCKADDR_IN && info.src_addrlen >= sizeof(sockaddr_in)) {
    static_cast<sockaddr_in*>(info.src_addr)->sin_port = number;
  } else if (info.addr_format == FI_SOCKADDR_IN6 && info.src_addrlen >= sizeof(sockaddr_in6)) {
    static_cast<sockaddr_in6*>(info.src_addr)->sin6_port = number;
  } else {
    return false;
  }
  return true;
}

std::vector<std::size_t> choose_offers(std::span<const Offer> offers, std::string_view wish,
                                       std::span<const InterfaceChoice> interfaces,
                                       std::size_t rails) {
  std::vector<std::size_t> chosen;
  const auto take = [&](auto fits) {
    const auto found = std::find_if(offers.begin(), offers.end(), [&](const Offer& offer) {
      return offer.tag_bits >= tag_bits && fits(offer);
    });
    if (found == offers.end()) {
      return false;
    }
    chosen.push_back(static_cast<std::size_t>(found - offers.begin()));
    return true;
  };
  for (const std::string& provider : preferences(offers, wish)) {
    // A provider that is not on IP, such as efa, is not tied to an interface's address.
    if (take([&](const Offer& offer) { return is(offer, provider) && offer.address.empty(); })) {
      return chosen;
    }
    for (const InterfaceChoice& choice : interfaces) {
      if (!choice.chosen || chosen.size() == rails) {
        continue;
      }
      for (const std::string& address : choice.interface.addresses) {
        if (take([&](const Offer& offer) {
              return is(offer, provider) && offer.address == address;
            })) {
          break;
        }
      }
    }
    if (!chosen.empty()) {
      return chosen;
    }
  }
  return chosen;
}

std::string describe_rails(std::span<const Info> rails) {
  std::string out;
  for (const Info& rail : rails) {
    out += out.empty() ? text(rail->fabric_attr->prov_name, " on ") : ", ";
    out += rail->domain_attr->name;
  }
  return out;
}

std::vector<std::string> describe_offers() {
  return describe(list_offers(get_info(make_hints().get()).get()));
}

std::vector<Info> find_rails(std::string_view wish, std::string_view interface_wish) {
  const Info list = get_info(make_hints().get());
  const std::vector<Offer> offers = list_offers(list.get());
  const auto interfaces = choose_interfaces(read_interfaces(), interface_wish);
  const bool named = !interface_wish.empty() && !interface_wish.starts_with('^');
  const auto chosen = choose_offers(offers, wish, interfaces, named ? interfaces.size() : 1);
  if (chosen.empty()) {
    need(!offers.empty(), "no libfabric provider has ordered tagged messages; there are:",
         joined(describe(list_offers(get_info(nullptr).get()))));
    need(false, "no libfabric provider fits SPRAT_PROVIDER=\"", wish, "\" and SPRAT_INTERFACE=\"",
         interface_wish, "\"; there are:", joined(describe(offers)));
  }
  std::vector<Info> rails;
  for (const std::size_t wanted : chosen) {
    const fi_info* at = list.get();
    for (std::size_t index = 0; index < wanted; ++index) {
      at = at->next;
    }
    rails.emplace_back(library().dupinfo(at));
    need(rails.back() != nullptr, "out of memory for libfabric");
  }
  return rails;
}

// Sockets' own provider, net in 1.17 and tcp afterwards, wakes who sleeps at no cost for who spins.
// Until 1.19 its fi_trywait() did nothing, so the queue's descriptor could be read for ever after
// the first completion; a wait set takes that back. Not ofi_rxm: over tcp a queue that can be slept
// on made spinning ranks slower by a fifth (8 B there and back between two namespaces, 1.17: 16.4
// instead of 13.6 µs). Others, such as efa, have not been tried.
Wakeup wakeup_of(std::string_view provider, std::uint32_t version) noexcept {
  if (provider != "net" && provider != "tcp") {
    return Wakeup::none;
  }
  return version < FI_VERSION(1, 19) ? Wakeup::wait_set : Wakeup::descriptor;
}

int to_errno(int error) {
  // Below FI_ERRNO_OFFSET libfabric's numbers are those of errno.
  switch (error) {
    case FI_ETRUNC:
      return EMSGSIZE;
    case FI_ENOAV:
      return EHOSTUNREACH;
    default:
      return error < FI_ERRNO_OFFSET ? error : EIO;
  }
}

}  // namespace sprat::comm::libfabric
