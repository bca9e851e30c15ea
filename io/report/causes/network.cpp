// This host's link is full.
#include <fmt/core.h>

#include "io/report/cause.hpp"

namespace sprat::io {
namespace {

std::optional<Cause> find_network(const ObservedWindow& window, const Past&, const StorageFacts&) {
  if (!link_is_full(window)) {
    return std::nullopt;
  }
  return Cause{Limit::network,
               fmt::format("network limit of this host: {} of {} MB/s come in, {} of them samples "
                           "from storage",
                           figure(*window.nic_mbps), figure(*window.link_mbps),
                           figure(window.file_system_mbps)),
               "spread the run over more hosts, keep samples in host caches, or use EFA"};
}

}  // namespace

extern const CauseKind network_cause;
const CauseKind network_cause = {Limit::network, "network", true, false, 3, find_network};

}  // namespace sprat::io
