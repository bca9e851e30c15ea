#include "mp/context/chunks.hpp"

#include <algorithm>
#include <cstddef>

#include "comm/base/check.hpp"

namespace sprat::mp::context {

int chunk_length(int length, int ranks) {
  require(ranks > 0, "a sequence is cut among ", ranks, " ranks; give at least 1");
  const int chunks = chunk_count(ranks);
  const int below = length / chunks * chunks;
  // Of two that are as near the longer one: no token is lost.
  const int nearest =
      below > 0 && length - below < below + chunks - length ? below : below + chunks;
  require(length > 0 && length % chunks == 0, "sequences of ", length, " tokens are not cut into ",
          chunks, " equal chunks, two for each of ", ranks, " context parallel ranks; the nearest ",
          "length that is, is ", nearest);
  return length / chunks;
}

std::vector<int> needers_of(int chunk, int ranks) {
  const int owner = owner_of(chunk, ranks);
  // Behind the middle only the ranks before the owner have a chunk that is later still.
  const int end = chunk < ranks ? ranks : owner;
  std::vector<int> needers;
  for (int rank = 0; rank < end; ++rank) {
    if (rank != owner) {
      needers.push_back(rank);
    }
  }
  return needers;
}

int Route::before(int rank) const {
  const auto at = std::ranges::find(ranks, rank);
  return at == ranks.begin() || at == ranks.end() ? -1 : *(at - 1);
}

int Route::behind(int rank) const {
  const auto at = std::ranges::find(ranks, rank);
  return at == ranks.end() || at + 1 == ranks.end() ? -1 : *(at + 1);
}

Route rising_route(int chunk, int ranks) { return {needers_of(chunk, ranks)}; }

Route ring_route(int chunk, int ranks) {
  Route route{needers_of(chunk, ranks)};
  const auto behind_owner = std::ranges::upper_bound(route.ranks, owner_of(chunk, ranks));
  std::rotate(route.ranks.begin(), behind_owner, route.ranks.end());
  return route;
}

}  // namespace sprat::mp::context
