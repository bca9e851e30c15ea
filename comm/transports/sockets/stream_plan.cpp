#include "comm/transports/sockets/stream_plan.hpp"

#include <algorithm>

#include "comm/transports/sockets/stream_frame.hpp"

namespace sprat::comm::sockets {
namespace {

/// Long enough for a system call to be cheap, short enough for caches to hold what is copied.
constexpr std::size_t usual_piece = 256 * 1024;
static_assert(usual_piece <= most_piece);

}  // namespace

std::size_t streams_for(int speed_mbit_s) {
  const int wanted = (std::max(speed_mbit_s, 1) + mbit_s_a_stream - 1) / mbit_s_a_stream;
  return std::min(static_cast<std::size_t>(wanted), most_streams_a_rail);
}

bool is_cut(std::size_t bytes, std::size_t streams) { return streams > 1 && bytes >= least_cut; }

std::size_t next_piece(std::size_t bytes, std::size_t left, std::size_t streams) {
  const std::size_t share = (bytes + streams - 1) / streams;
  return std::min(left, std::clamp(share, least_piece, usual_piece));
}

}  // namespace sprat::comm::sockets
