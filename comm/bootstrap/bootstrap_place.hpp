// Where the ranks of a job learn how to reach the coordinator, and what they prove to it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/coordinator/rendezvous.hpp"
#include "comm/coordinator/trust.hpp"
#include "sprat/store.hpp"

namespace sprat::comm {

struct SocketAddress {
  std::string host;  ///< A name or a numeric address.
  int port = 0;
  bool operator==(const SocketAddress&) const = default;
};

/// How to reach the coordinator. Its addresses lead to the same coordinator, or to others, which
/// know another token.
struct Contact {
  std::vector<SocketAddress> addresses;
  std::string token;
  bool operator==(const Contact&) const = default;
};
/// As text, for a file or a launcher's store.
std::string write_contact(const Contact& contact);
/// Null if the text is not one.
std::optional<Contact> read_contact(std::string_view text);

/// "host:port", "[::1]:80". Throws Error{invalid_argument}, naming `source`, if it is not that.
SocketAddress parse_address(std::string_view text, std::string_view source);

class BootstrapPlace {
 public:
  /// Takes away what publish() left there.
  virtual ~BootstrapPlace() = default;
  /// For errors: "tcp://host:29500", "the file /shared/x".
  virtual std::string name() const = 0;
  virtual int size() const = 0;
  /// For the error of those who find nobody there: who serves them, and what to look at.
  struct Server {
    int rank = 0;  ///< As Error::rank() names it.
    std::string advice = "Rank 0 serves it: is it running, and there?";
  };
  virtual Server server() const = 0;
  /// Rank 0: ports to listen on, the first free one; 0 is any.
  virtual std::vector<int> ports() const = 0;
  virtual std::string token() const = 0;
  /// Whom the coordinator and the others believe besides, for whether that token is a secret.
  virtual Trust trust() const = 0;
  /// Rank 0, listening: lets the others find it. Throws Error{unavailable}.
  virtual void publish(int port) = 0;
  /// The others: null, and why, if there is nothing yet. May take until the deadline.
  struct Found {
    std::optional<Contact> contact;
    std::string why_not;
  };
  virtual Found look_up(std::chrono::steady_clock::time_point deadline) = 0;
};

/// By the scheme of launch.rendezvous. Throws Error{invalid_argument} for one that is not known.
std::unique_ptr<BootstrapPlace> find_bootstrap_place(const Config& config, const Launch& launch);

// One for each scheme.
std::unique_ptr<BootstrapPlace> bootstrap_at_address(const Config& config, const Launch& launch);
std::unique_ptr<BootstrapPlace> bootstrap_at_file(const Config& config, const Launch& launch);
std::unique_ptr<BootstrapPlace> bootstrap_by_pmix(const Config& config, const Launch& launch);
/// Under `key`. `store` outlives it.
std::unique_ptr<BootstrapPlace> bootstrap_at_store(const Config& config, const Launch& launch,
                                                   Store& store, std::string_view key);
/// Newcomers look elsewhere than those who join from the start, so that neither find the other's.
inline constexpr std::string_view contact_key = "sprat/contact";
inline constexpr std::string_view growth_key = "sprat/growth";

/// Where rank 0 may listen if nothing else says it: SPRAT_PORTS, or {0}, any.
std::vector<int> free_ports(const Config& config);

/// This host's addresses on a port, those of the chosen interfaces first, the loopback last.
std::vector<SocketAddress> addresses_of_this_host(const Config& config, int port);

}  // namespace sprat::comm
