// What ranks of several hosts need: interfaces and libfabric.
#include <fmt/core.h>

#include <algorithm>

#include "cli/doctor/checks.hpp"
#include "comm/host/interfaces.hpp"
#include "comm/transports/libfabric/provider.hpp"
#include "comm/transports/transport_kind.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using Level = Finding::Level;

}  // namespace

Finding check_interfaces(const Config& config) {
  Finding finding{"interfaces", Level::ok, "", ""};
  try {
    bool only_loopback = true;
    for (const auto& choice : comm::choose_interfaces(comm::read_interfaces(), config.interface)) {
      if (!choice.chosen) {
        continue;
      }
      only_loopback = only_loopback && choice.interface.loopback;
      finding.found += fmt::format("{}{} ({})", finding.found.empty() ? "" : ", ",
                                   choice.interface.name, choice.reason);
    }
    if (only_loopback) {
      finding.level = Level::warn;
      finding.remedy = "bring an interface up if ranks are to run on other hosts: ip link";
    }
  } catch (const Error& error) {
    finding = {"interfaces", Level::fail, error.what(),
               "set SPRAT_INTERFACE to one that is up: ip -br addr"};
  }
  return finding;
}

bool has_efa() {
  const auto offers = comm::libfabric::describe_offers();
  return std::ranges::any_of(offers,
                             [](const std::string& one) { return one.starts_with("efa "); });
}

Finding check_providers(const Config& config) {
  try {
    using comm::TransportKind;
    const TransportKind& wire = comm::choose_transport(TransportKind::Scope::network, config);
    return {wire.name, Level::ok,
            fmt::format("{}; {} efa here", wire.describe(config),
                        has_efa() ? "there is" : "there is no")};
  } catch (const Error& error) {
    return {"libfabric", Level::fail, error.what(),
            "unset SPRAT_PROVIDER and SPRAT_INTERFACE, or install the provider"};
  }
}

}  // namespace sprat::cli
