// The transport between ranks that share memory, as an entry of the table.
#include "comm/transports/shm/ring.hpp"
#include "comm/transports/transport_kind.hpp"

namespace sprat::comm {

extern const TransportKind shm_transport;
const TransportKind shm_transport = {
    .name = "shm",
    .summary = "rings in the memory that ranks of one host share; everywhere",
    .scope = TransportKind::Scope::host,
    .available = [](const Config&) { return true; },
    .control_bytes = &ShmRing::bytes_needed,
    .open = [](const TransportOptions& options) -> std::unique_ptr<MessageTransport> {
      return std::make_unique<ShmRing>(ShmRingOptions{.rank = options.rank,
                                                      .ranks = options.ranks,
                                                      .mine = options.mine,
                                                      .memory = options.theirs,
                                                      .ring = options.ring});
    },
    .describe = [](const Config&) -> std::string { return "rings in shared memory"; }};

}  // namespace sprat::comm
