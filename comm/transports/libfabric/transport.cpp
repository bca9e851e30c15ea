// The transport between hosts through libfabric, as an entry of the table.
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/encryption/job_key.hpp"
#include "comm/transports/libfabric/libfabric.hpp"
#include "comm/transports/libfabric/provider.hpp"
#include "comm/transports/libfabric/rails.hpp"
#include "comm/transports/transport_kind.hpp"

namespace sprat::comm {

std::unique_ptr<MessageTransport> open_libfabric(const Config& config, int rank, int size) {
  std::vector<std::unique_ptr<libfabric::Messages>> rails;
  for (libfabric::Info& info : libfabric::find_rails(config.provider, config.interface)) {
    rails.push_back(
        std::make_unique<libfabric::Messages>(std::move(info), config.ports, rank, size));
  }
  return std::make_unique<libfabric::Rails>(std::move(rails), rank);
}

namespace {

void refuse_to_encrypt(const Config& config) {
  encryption_of(config);  // tells which setting is in the way
  require(!config.encrypt, "SPRAT_ENCRYPT=1, and libfabric does not encrypt");
}

}  // namespace

// Asking whether a provider fits takes as long as opening it, which says what is missing.
extern const TransportKind libfabric_transport;
const TransportKind libfabric_transport = {
    .name = "libfabric",
    .summary = "tagged messages of a libfabric provider: efa on AWS",
    .scope = TransportKind::Scope::network,
    .available = [](const Config&) { return true; },
    .control_bytes = [](std::size_t) { return std::size_t{0}; },
    .open =
        [](const TransportOptions& options) {
          refuse_to_encrypt(options.config);
          return open_libfabric(options.config, options.rank, options.size);
        },
    .describe =
        [](const Config& config) {
          refuse_to_encrypt(config);
          return libfabric::describe_rails(
              libfabric::find_rails(config.provider, config.interface));
        }};

}  // namespace sprat::comm
