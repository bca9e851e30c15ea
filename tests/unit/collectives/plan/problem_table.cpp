// The problems that every algorithm is held against.
#include "tests/unit/collectives/plan/problem_table.hpp"

#include <set>

#include "collectives/verify/verifier.hpp"
#include "comm/base/check.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::collectives {

namespace {

/// Up to here a problem is varied in every way; beyond, only in ranks and placement.
constexpr int varied_ranks = 17;

std::vector<int> rank_counts() {
  if (sanitized) {
    return {1, 2, 3, 4, 5, 8, 11, 17, 24, 33};
  }
  std::vector<int> counts;
  for (int ranks = 1; ranks <= 33; ++ranks) {
    counts.push_back(ranks);
  }
  return counts;
}

std::vector<std::size_t> element_counts(Collective collective, int ranks) {
  if (collective == Collective::barrier) {
    return {0};
  }
  const std::size_t whole = 64 * static_cast<std::size_t>(ranks) + 3;
  if (ranks > varied_ranks) {
    return {whole};
  }
  std::vector<std::size_t> counts = {0, 1, 5, whole};
  // Several chunks where plans are pipelined.
  if (collective == Collective::broadcast) {
    counts.push_back(1'000'000);
  }
  if (reduces(collective) && ranks <= 8) {
    counts.push_back(70'000 * static_cast<std::size_t>(ranks));
  }
  return counts;
}

std::vector<Types> element_types(Collective collective, int ranks) {
  if (!reduces(collective)) {
    return {{DType::i16, DType::i16}};
  }
  if (ranks > varied_ranks) {
    const DType dtype = ranks % 2 == 0 ? DType::f32 : DType::bf16;
    return {{dtype, dtype}};
  }
  return {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::f16, DType::f32}};
}

std::set<int> roots(Collective collective, int ranks) {
  if (!has_root(collective)) {
    return {0};
  }
  if (ranks > varied_ranks) {
    return {ranks / 2};
  }
  return {0, ranks / 2, ranks - 1};
}

/// How `count` elements a block become blocks of different lengths.
struct Skew {
  const char* name;
  std::size_t (*of)(std::size_t count, int ranks, int from, int to);
};
const Skew skews[] = {
    {"uneven",
     [](std::size_t count, int, int from, int to) { return count * (from + 2 * to + 1) / 3; }},
    {"every other empty",
     [](std::size_t count, int, int from, int to) { return (from + to) % 2 == 0 ? count : 0; }},
    {"one has all", [](std::size_t count, int ranks, int from,
                       int to) { return from == ranks / 2 || to == ranks / 2 ? count : 0; }},
};

std::span<const Skew> skews_for(int ranks) {
  return std::span(skews).first(ranks > varied_ranks ? 1 : std::size(skews));
}

std::shared_ptr<const BlockCounts> counts_by(int ranks, const std::function<std::size_t(int)>& of) {
  std::vector<std::size_t> counts;
  for (int block = 0; block < ranks; ++block) {
    counts.push_back(of(block));
  }
  return std::make_shared<const BlockCounts>(std::move(counts));
}

/// The problem as each rank has it if blocks differ by `skew`.
std::vector<Problem> skewed(const Problem& problem, const Skew& skew) {
  const int ranks = problem.ranks();
  std::vector<Problem> each = for_each_rank(problem);
  for (Problem& mine : each) {
    const int me = mine.rank;
    const auto to_me =
        counts_by(ranks, [&](int b) { return skew.of(problem.count, ranks, b, me); });
    const auto shared =
        counts_by(ranks, [&](int b) { return skew.of(problem.count, ranks, b, 0); });
    switch (problem.collective) {
      case Collective::gatherv:
      case Collective::scatterv:
        mine.count = shared->count(me);
        mine.counts = me == problem.root ? shared : nullptr;
        break;
      case Collective::all_to_allv:
        mine.counts = counts_by(ranks, [&](int b) { return skew.of(problem.count, ranks, me, b); });
        mine.out_counts = to_me;
        mine.count = 0;
        break;
      default:
        mine.counts = shared;
        mine.count = shared->largest();
    }
  }
  return each;
}

/// Whether block counts may or must differ.
bool has_counts(const Problem& problem, const Algorithm& algorithm) {
  if (problem.collective != Collective::all_gather &&
      problem.collective != Collective::reduce_scatter) {
    return exchanges(problem.collective);
  }
  Problem skewed = problem;
  skewed.counts = counts_by(problem.ranks(), [](int) { return 1; });
  return algorithm.fits(skewed);
}

}  // namespace

const std::vector<Placement>& placements() {
  static const std::vector<Placement> table = {
      {"one host", [](int, int) { return 0; }},
      {"a host each", [](int rank, int) { return rank; }},
      {"two halves", [](int rank, int ranks) { return rank < ranks / 2 ? 0 : 1; }},
      {"1, 2 and the rest", [](int rank, int) { return rank < 1   ? 0
                                                       : rank < 3 ? 1
                                                                  : 2; }},
      {"round robin over 3", [](int rank, int) { return rank % 3; }},
      {"fours", [](int rank, int) { return rank / 4; }},
      {"pairs round robin over 2", [](int rank, int) { return rank / 2 % 2; }},
      {"every second of threes, as split", [](int rank, int) { return 2 * rank / 3 % 5; }},
      {"fours backwards, as split", [](int rank, int ranks) { return (ranks - 1 - rank) / 4; }},
  };
  return table;
}

std::shared_ptr<const Grouping> place(const Placement& placement, int ranks) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    hosts.push_back(placement.host_of(rank, ranks));
  }
  return std::make_shared<const Grouping>(hosts);
}

void for_each_case(const Algorithm& algorithm, const std::function<void(const Case&)>& body) {
  Problem problem;
  problem.collective = algorithm.collective;
  for (int ranks : rank_counts()) {
    for (const Placement& placement : placements()) {
      problem.grouping = place(placement, ranks);
      if (!algorithm.fits(problem)) {
        continue;
      }
      for (const Types& types : element_types(algorithm.collective, ranks)) {
        problem.input = types.input;
        problem.output = types.output;
        for (std::size_t count : element_counts(algorithm.collective, ranks)) {
          problem.count = count;
          for (int root : roots(algorithm.collective, ranks)) {
            problem.root = root;
            const std::string label =
                text(ranks, " ranks, ", placement.name, ", count ", count, ", ", name(types.input),
                     " to ", name(types.output), ", root ", root);
            if (!exchanges(problem.collective)) {
              body({problem, for_each_rank(problem), label});
            }
            if (!has_counts(problem, algorithm)) {
              continue;
            }
            for (const Skew& skew : skews_for(ranks)) {
              const std::vector<Problem> each = skewed(problem, skew);
              body({each.front(), each, label + ", " + skew.name});
            }
          }
        }
      }
    }
  }
}

bool may_alias(const Problem& problem) {
  return problem.input == problem.output && problem.collective != Collective::all_to_all &&
         problem.collective != Collective::all_to_allv;
}

}  // namespace sprat::collectives
