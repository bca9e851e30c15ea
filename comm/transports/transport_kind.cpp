// The table of transports: every folder of comm/transports/, best first.
#include "comm/transports/transport_kind.hpp"

#include <array>
#include <string>

#include "comm/base/check.hpp"

// One entry a folder; a test compares the list with the folders.
#define SPRAT_TRANSPORTS(entry) entry(shm) entry(sockets) entry(libfabric)

namespace sprat::comm {

#define SPRAT_DECLARE(name) extern const TransportKind name##_transport;
SPRAT_TRANSPORTS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const TransportKind* const> all_transport_kinds() noexcept {
#define SPRAT_ADDRESS(name) &name##_transport,
  static constexpr std::array transports = {SPRAT_TRANSPORTS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return transports;
}

const TransportKind& choose_transport(TransportKind::Scope scope, const Config& config) {
  std::string known;
  for (const TransportKind* kind : all_transport_kinds()) {
    if (kind->scope != scope) {
      continue;
    }
    if (kind->available(config)) {
      return *kind;
    }
    known += text(known.empty() ? "" : ", ", kind->name);
  }
  throw Error(ErrorCode::unavailable,
              text("no transport ", scope == TransportKind::Scope::host ? "within" : "between",
                   " hosts is available here; there are: ", known));
}

}  // namespace sprat::comm
