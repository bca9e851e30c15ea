// How many streams join two ranks, and how messages are cut over them. Pure.
//
// All that matches messages to receives goes through the first stream, in order, so messages of
// equal tags cannot overtake each other. Only pieces of long ones go through the others too: each
// stream takes the next piece in its turn and when it has room, so a slow one takes fewer.
#pragma once

#include <cstddef>

#include "comm/transports/transport.hpp"

namespace sprat::comm::sockets {

/// Over two streams the shortest equal pieces have 16 KiB.
inline constexpr std::size_t least_cut = exact_bytes;
/// Shorter pieces cost more in system calls than they gain in being spread.
inline constexpr std::size_t least_piece = 16 * 1024;
/// A stream of its own is worth about so much of an interface's speed: clouds limit one flow to 5
/// or 10 Gbit/s, and one core copies little more.
inline constexpr int mbit_s_a_stream = 10'000;
inline constexpr std::size_t most_streams_a_rail = 8;
inline constexpr std::size_t most_streams = 64;

/// How many streams a rail of this speed wants; 0 Mbit/s: nobody knows.
std::size_t streams_for(int speed_mbit_s);
/// Whether a message that needs not be asked for goes in pieces all the same.
bool is_cut(std::size_t bytes, std::size_t streams);
/// How often streams write in turn, a piece each, before others may have the token. One alone
/// writes all that it may at once.
constexpr int turns_of(std::size_t streams) { return streams > 1 ? 4 : 1; }
/// How long the next piece of a message is of which so many bytes are left.
std::size_t next_piece(std::size_t bytes, std::size_t left, std::size_t streams);

}  // namespace sprat::comm::sockets
