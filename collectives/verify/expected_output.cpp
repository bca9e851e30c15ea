// What every collective's output is to hold, as symbols.
#include "collectives/verify/expected_output.hpp"

namespace sprat::collectives {

namespace {

/// The canonical tree over `range`, built as numerics.md defines it, not as any algorithm does.
Expression canonical(Symbols& symbols, RankRange range, int block) {
  if (range.size() == 1) {
    return symbols.contribution(range.first, block);
  }
  const int middle = split_point(range);
  const Expression left = canonical(symbols, {range.first, middle}, block);
  return symbols.combined(left, canonical(symbols, {middle, range.last}, block));
}

}  // namespace

Expression result_of(Symbols& symbols, const Problem& problem, int rank, int block) {
  switch (problem.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return symbols.finished(canonical(symbols, {0, problem.ranks()}, 0));
    case Collective::reduce_scatter:
      return symbols.finished(canonical(symbols, {0, problem.ranks()}, rank));
    case Collective::all_gather:
    case Collective::gather:
    case Collective::gatherv:
      return symbols.contribution(block, 0);
    case Collective::broadcast:
      return symbols.contribution(problem.root, 0);
    case Collective::scatter:
    case Collective::scatterv:
      return symbols.contribution(problem.root, rank);
    case Collective::all_to_all:
    case Collective::all_to_allv:
      return symbols.contribution(block, rank);
    case Collective::barrier:
      return undefined;
  }
  return undefined;
}

}  // namespace sprat::collectives
