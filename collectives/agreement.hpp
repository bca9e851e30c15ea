// How ranks that are about to form a communicator agree on its number, without anybody else.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/engine/point_to_point.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// Who forms a communicator, as each of them calls it.
struct Founding {
  std::string name;
  std::vector<int> members;       ///< Ranks of the parent, in the order of their new ranks.
  int me = 0;                     ///< This rank's place among them.
  std::size_t control_block = 0;  ///< This rank's, in its control segment.
  std::chrono::milliseconds timeout{0};
  /// Called if the agreement fails so late that other members may have the number all the same.
  std::function<void(std::uint64_t id, const Error& cause)> given_up = {};
};

/// What they agree on: a number that no communicator of theirs has had, and where their control
/// blocks lie.
struct Agreement {
  std::uint64_t id = 0;
  std::vector<std::size_t> control_blocks;  ///< By new rank.
};

/// Blocks until every member calls it with the same name and members. Messages of `parent` carry
/// it, apart from those of its users. Throws Error{mismatch} if members differ, Error{timeout}.
Agreement agree(comm::Context& context, PointToPoint& parent, const Founding& founding);

}  // namespace sprat::collectives
