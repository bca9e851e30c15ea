// Messages between many hosts in an order in which they do not crowd.
#include "collectives/patterns/pairwise_exchange.hpp"

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

PairwiseExchange::PairwiseExchange(int distances, std::size_t bytes)
    : chunks_(chunks_of(bytes)), arrivals_(static_cast<std::size_t>(distances * chunks_)) {
  const std::size_t whole =
      std::max<std::size_t>(1, whole_bytes_at_once / std::max<std::size_t>(1, bytes));
  at_once_ = chunks_ > 1 ? chunks_at_once : whole;
}

void PairwiseExchange::arrives(int distance, int chunk, IndexRange receives) {
  arrivals_[number(distance, chunk)] = receives;
}

IndexRange PairwiseExchange::behind(int distance, int chunk) const {
  const std::size_t turn = number(distance, chunk);
  return turn < at_once_ ? IndexRange{} : arrivals_[turn - at_once_];
}

std::size_t PairwiseExchange::number(int distance, int chunk) const {
  return static_cast<std::size_t>((distance - 1) * chunks_ + chunk);
}

}  // namespace sprat::collectives
