// How a rank finds the hub: it knocks at every door of the meeting place until one lets it in.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>

#include "comm/control_frame.hpp"
#include "comm/control_socket.hpp"
#include "comm/meeting_place.hpp"

namespace sprat::comm {

/// A connection that the hub has let in, for use with `io`. Ranks may come before the hub does.
/// Throws Error{timeout} saying what every door did, or the hub's refusal.
StreamSocket find_hub(boost::asio::io_context& io, MeetingPlace& place, const Hello& hello,
                      std::chrono::steady_clock::time_point deadline);

}  // namespace sprat::comm
