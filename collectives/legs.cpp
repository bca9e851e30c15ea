// Messages between many hosts in an order in which they do not crowd.
#include "collectives/legs.hpp"

#include <algorithm>

namespace sprat::collectives {

namespace {

constexpr std::size_t chunk_bytes = 128 * 1024;
constexpr std::size_t most_chunks = 256;  // so that plans stay short
// Under way from one rank: what a wire needs to be busy while a message is acknowledged. Whole
// messages go to as many hosts, whose wires others fill as well.
constexpr std::size_t chunks_at_once = 4;
constexpr std::size_t whole_bytes_at_once = chunk_bytes;

}  // namespace

int chunks_of(std::size_t bytes) {
  return static_cast<int>(std::clamp<std::size_t>(bytes / chunk_bytes, 1, most_chunks));
}

Legs::Legs(int distances, std::size_t bytes)
    : chunks_(chunks_of(bytes)), arrivals_(static_cast<std::size_t>(distances * chunks_)) {
  const std::size_t whole =
      std::max<std::size_t>(1, whole_bytes_at_once / std::max<std::size_t>(1, bytes));
  at_once_ = chunks_ > 1 ? chunks_at_once : whole;
}

void Legs::arrives(int distance, int chunk, IndexRange receives) {
  arrivals_[number(distance, chunk)] = receives;
}

IndexRange Legs::behind(int distance, int chunk) const {
  const std::size_t leg = number(distance, chunk);
  return leg < at_once_ ? IndexRange{} : arrivals_[leg - at_once_];
}

std::size_t Legs::number(int distance, int chunk) const {
  return static_cast<std::size_t>((distance - 1) * chunks_ + chunk);
}

}  // namespace sprat::collectives
