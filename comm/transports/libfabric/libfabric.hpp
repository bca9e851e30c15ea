// Messages between hosts through libfabric: efa on AWS, tcp elsewhere.
#pragma once

#include <memory>

#include "comm/transports/transport.hpp"
#include "sprat/config.hpp"

namespace sprat::comm {

/// Opens an endpoint of the provider and the interface that `config` asks for; all tag_bits of a
/// tag count, and a message may be as long as memory. Several may be open in one process, each
/// driven by one thread at a time. Throws Error{unavailable} listing what there is if no provider
/// fits.
///
/// A receive that no message has matched can be cancelled. What a provider cannot withdraw (a long
/// message under way) gets 100 ms to end by itself; then the endpoint is closed: everything in
/// flight fails with ECANCELED, and later requests with ENOTCONN.
std::unique_ptr<MessageTransport> open_libfabric(const Config& config, int rank, int size);

}  // namespace sprat::comm
