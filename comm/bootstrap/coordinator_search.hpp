// How a rank finds the coordinator: it tries every address of the bootstrap place until a
// coordinator lets it in.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>

#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/coordinator/control_frame.hpp"
#include "comm/coordinator/control_line.hpp"

namespace sprat::comm {

/// A connection that the coordinator has let in, and as whom.
struct Entrance {
  ControlLine line;
  Welcome welcome;
};

/// For use with `io`. Ranks may come before the coordinator does, and newcomers before there is
/// a place for them. Throws Error{timeout} saying what every address did, or the coordinator's
/// refusal.
Entrance find_coordinator(boost::asio::io_context& io, BootstrapPlace& place, const Hello& hello,
                          std::chrono::steady_clock::time_point deadline,
                          Encryption encryption = Encryption::off);

}  // namespace sprat::comm
