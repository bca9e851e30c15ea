#include "mp/tensor/row_plan.hpp"

#include <algorithm>
#include <cstdint>

#include "comm/base/check.hpp"

namespace sprat::tensor {
namespace {

// More chunks hide no more than a small rest of what travels.
constexpr int most_chunks = 8;

int chunk_count(const Parallelism& how, int rows, int width) {
  if (how.degree == 1) {
    return 1;
  }
  const std::uint64_t bytes = sizeof(float) * std::uint64_t(rows) * std::uint64_t(width);
  const std::uint64_t by_bytes = bytes / std::max<std::size_t>(how.chunk_bytes, 1);
  const int pieces = how.sequence_parallel ? how.degree : 1;
  // A chunk has rows of each rank, which do not follow each other: a product for each.
  const int by_rows = std::max(rows / pieces / std::max(how.chunk_rows, 1), 1);
  return std::max(1, static_cast<int>(
                         std::min({by_bytes, std::uint64_t(by_rows), std::uint64_t{most_chunks}})));
}

std::vector<RowRun> joined_runs(const RowChunk& chunk, int without) {
  std::vector<RowRun> runs;
  int at = 0;
  for (int rank = 0; rank < static_cast<int>(chunk.pieces.size()); ++rank) {
    const Part& piece = chunk.pieces[static_cast<std::size_t>(rank)];
    if (rank != without && piece.count > 0) {
      RowRun* last = runs.empty() ? nullptr : &runs.back();
      if (last != nullptr && last->rows.end() == piece.first && last->at + last->rows.count == at) {
        last->rows.count += piece.count;
      } else {
        runs.push_back({.rows = piece, .at = at});
      }
    }
    at += piece.count;
  }
  return runs;
}

}  // namespace

Part part_of(int extent, int parts, int index) {
  require(extent >= 0 && parts > 0 && index >= 0 && index < parts, "part ", index, " of ", parts,
          " of an extent of ", extent, "; parts are counted from 0, and an extent is not negative");
  const auto begin = [&](int part) {
    return static_cast<int>(std::int64_t{extent} * part / parts);
  };
  return {.first = begin(index), .count = begin(index + 1) - begin(index)};
}

RowPlan plan_rows(const Parallelism& how, int rows, int width) {
  RowPlan plan{.dealt = rows_are_dealt(how), .own = {}, .chunks = {}};
  for (int rank = 0; rank < how.degree; ++rank) {
    plan.own.push_back(plan.dealt ? part_of(rows, how.degree, rank) : Part{0, rows});
  }
  const int count = chunk_count(how, rows, width);
  for (int index = 0; index < count; ++index) {
    RowChunk chunk;
    // Each rank's rows are cut alike, so that every chunk has work for all links.
    for (int rank = 0; rank < (plan.dealt ? how.degree : 1); ++rank) {
      const Part& own = plan.own[static_cast<std::size_t>(rank)];
      Part piece = part_of(own.count, count, index);
      piece.first += own.first;
      chunk.pieces.push_back(piece);
      chunk.rows += piece.count;
    }
    plan.most_rows = std::max(plan.most_rows, chunk.rows);
    plan.chunks.push_back(std::move(chunk));
  }
  return plan;
}

std::vector<RowRun> runs_of(const RowChunk& chunk) { return joined_runs(chunk, -1); }
std::vector<RowRun> runs_of_others(const RowChunk& chunk, int rank) {
  return joined_runs(chunk, rank);
}

int place_in(const RowChunk& chunk, int rank) {
  int place = 0;
  for (int before = 0; before < rank; ++before) {
    place += chunk.pieces[static_cast<std::size_t>(before)].count;
  }
  return place;
}

std::size_t slots_count(const Parallelism& how, int rows, int width) {
  if (how.degree == 1) {
    return 0;
  }
  const RowPlan plan = plan_rows(how, rows, width);
  const int slots = std::min(chunks_under_way, static_cast<int>(plan.chunks.size()));
  return std::size_t(slots) * row_elements(plan.most_rows, width);
}

std::size_t most_slots_count(const Parallelism& how, int rows, int width) {
  if (how.degree == 1) {
    return 0;
  }
  // More rows make no fewer chunks, so of each number of chunks the most rows are found by halving.
  int most = 0;
  for (int chunks = 1; chunks <= most_chunks; ++chunks) {
    int fit = 0, too_many = rows + 1;
    while (too_many - fit > 1) {
      const int middle = fit + (too_many - fit) / 2;
      (chunk_count(how, middle, width) <= chunks ? fit : too_many) = middle;
    }
    // A chunk has a piece of each rank, each of them rounded up at most.
    const int fitting = chunk_count(how, fit, width);
    const int chunk = std::min(fit, fit / fitting + how.degree + 1);
    most = std::max(most, std::min(fitting, chunks_under_way) * chunk);
  }
  return row_elements(most, width);
}

}  // namespace sprat::tensor
