// Messages between many hosts in an order in which they do not crowd.
#include "collectives/patterns/pairwise_exchange.hpp"

#include <algorithm>

namespace sprat::collectives {

namespace {

constexpr std::size_t chunk_bytes = 128 * 1024;
// Every chunk costs calls of the kernel at both ends, and an acknowledgement. A pair's are longer,
// but of a message that has so many: while one is copied into the kernel another is out of it.
constexpr std::size_t chunk_bytes_of_pair = 512 * 1024, least_chunks_of_pair = 4;
constexpr std::size_t most_chunks = 256;  // so that plans stay short
// Under way from one rank: what a wire needs to be busy while a message is acknowledged. Whole
// messages go to as many hosts, whose wires others fill as well.
constexpr std::size_t chunks_at_once = 4;
constexpr std::size_t whole_bytes_at_once = chunk_bytes;

}  // namespace

bool is_pair(const Grouping& grouping) { return grouping.hosts() == 2 && grouping.ranks() == 2; }

int chunks_of(const Grouping& grouping, std::size_t bytes) {
  std::size_t chunks = bytes / chunk_bytes;
  if (is_pair(grouping)) {
    chunks = std::max(std::min(chunks, least_chunks_of_pair), bytes / chunk_bytes_of_pair);
  }
  return static_cast<int>(std::clamp<std::size_t>(chunks, 1, most_chunks));
}

PairwiseExchange::PairwiseExchange(const Grouping& grouping, int distances, std::size_t bytes)
    : chunks_(chunks_of(grouping, bytes)),
      arrivals_(static_cast<std::size_t>(distances * chunks_)) {
  const std::size_t whole =
      std::max<std::size_t>(1, whole_bytes_at_once / std::max<std::size_t>(1, bytes));
  at_once_ = is_pair(grouping) ? arrivals_.size() : chunks_ > 1 ? chunks_at_once : whole;
}

void PairwiseExchange::arrives(int distance, int chunk, IndexRange receives) {
  arrivals_[number(distance, chunk)] = receives;
}

IndexRange PairwiseExchange::behind(int distance, int chunk) const {
  return arrival_before(number(distance, chunk), at_once_);
}

// A rank that reduced all at first would keep its core from others, who have nothing on their wires
// yet, and fetch from memory what the caches had when it was made.
IndexRange PairwiseExchange::work_behind(int distance, int chunk) const {
  return arrival_before(number(distance, chunk), 2 * at_once_);
}

IndexRange PairwiseExchange::arrival_before(std::size_t turn, std::size_t turns) const {
  return turn < turns ? IndexRange{} : arrivals_[turn - turns];
}

std::size_t PairwiseExchange::number(int distance, int chunk) const {
  return static_cast<std::size_t>((distance - 1) * chunks_ + chunk);
}

}  // namespace sprat::collectives
