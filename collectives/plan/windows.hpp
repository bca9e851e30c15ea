// Windows: how a large operation is cut if some rank must copy what peers read of it to staging
// memory first.
//
// A window is the same part of every block. Windows alternate between two halves of the staging
// memory, so that one is copied in while peers still read the other. All here is a pure function of
// what every rank knows, so all ranks of an operation cut alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/plan.hpp"

namespace sprat::collectives {

/// How peers get at the buffers of an operation.
enum class Access : std::uint8_t {
  direct,  ///< Whatever a peer reads lies where it can.
  staged,  ///< Some rank may have to copy its buffers to staging memory.
};

/// Whether a peer may read that buffer of a rank.
bool may_be_read(const Problem& problem, Buffer buffer, int rank);
/// Whether private memory goes through staging even where peers could read it through the kernel.
bool is_better_staged(const Problem& problem);
/// Of several hosts, none of which sees the buffers of the others: what holds whatever memory the
/// ranks call with. `everybody_readable`: local peers can read each other's private memory.
Access access_between_hosts(const Problem& problem, const Algorithm& algorithm,
                            bool everybody_readable);
/// Whether how it is cut depends on where the buffers of a host's ranks lie, which they announce.
bool asks_announcements(const Problem& problem, std::size_t staging_bytes);

/// An operation of `number` windows of `count` elements of each block; the last one may be smaller.
struct Windows {
  std::size_t count = 0, number = 1;
  bool operator==(const Windows&) const = default;
};
/// Throws Error{unavailable} if the least window does not fit half of the staging memory.
Windows cut(const Problem& problem, Access access, std::size_t staging_bytes);

struct Window {
  std::size_t index = 0;
  std::size_t first = 0;  ///< Elements of each block before it.
  std::size_t count = 0;  ///< Elements of a block in it.
  /// The same where blocks differ; else null. Of a single window shared with the problem.
  std::shared_ptr<const BlockCounts> counts = nullptr;
};
Window window_of(const Problem& problem, const Windows& windows, std::size_t index);
/// Elements of a rank's input or output in a window.
std::size_t elements_of(const Problem& problem, const Window& window, Buffer buffer, int rank);

}  // namespace sprat::collectives
