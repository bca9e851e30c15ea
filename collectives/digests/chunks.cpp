// Which bytes of a call are digested.
#include "collectives/digests/chunks.hpp"

#include <xxhash.h>

#include <algorithm>

#include "collectives/plan/plan.hpp"

namespace sprat::collectives::digests {

std::uint64_t digest_of_chunk(std::span<const std::byte> buffer, std::size_t index) {
  const std::size_t first = index * chunk_bytes;
  return XXH3_64bits(buffer.data() + first, std::min(chunk_bytes, buffer.size() - first));
}

std::uint64_t fold(std::span<const std::uint64_t> digests, std::uint64_t seed) {
  return XXH3_64bits_withSeed(digests.data(), digests.size_bytes(), seed);
}

// Only the root's buffer goes into a broadcast: what lies in the others' is to be overwritten, and
// may well differ from run to run.
Extents extents_of(const Problem& problem) {
  const bool gives = problem.collective != Collective::broadcast || problem.rank == problem.root;
  return {.input = gives ? elements_of(problem, Buffer::input, problem.rank) : 0,
          .result = elements_of(problem, Buffer::output, problem.rank)};
}

bool is_replicated(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::broadcast:
      return true;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::barrier:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
    case Collective::gatherv:
    case Collective::scatterv:
    case Collective::all_to_allv:
      return false;
  }
  return false;
}

}  // namespace sprat::collectives::digests
