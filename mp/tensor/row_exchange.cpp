// Chunk c is computed while chunk c - 1 travels, in slots that take turns. Which rows are in which
// chunk changes no sum: a row's has one contribution of each rank, in the canonical order.
#include "mp/tensor/row_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::tensor {
namespace {

constexpr std::size_t under_way = chunks_under_way;

/// Elements of each piece.
std::vector<std::size_t> counts_of(std::span<const Part> pieces, int width) {
  std::vector<std::size_t> counts;
  for (const Part& piece : pieces) {
    counts.push_back(row_elements(piece.count, width));
  }
  return counts;
}

std::span<float> slot_of(const RowExchange& exchange, std::size_t chunk) {
  const RowPlan& plan = exchange.plan;
  const std::size_t most = row_elements(plan.most_rows, exchange.width);
  return exchange.slots.subspan(chunk % under_way * most,
                                row_elements(plan.chunks[chunk].rows, exchange.width));
}

/// This rank's piece of a chunk, and its rows as this rank counts its own.
Part piece_of(const RowExchange& exchange, std::size_t chunk) {
  const RowPlan& plan = exchange.plan;
  const auto rank = static_cast<std::size_t>(plan.dealt ? exchange.group.rank() : 0);
  return plan.chunks[chunk].pieces[rank];
}
Part own_of(const RowExchange& exchange, std::size_t chunk) {
  Part own = piece_of(exchange, chunk);
  own.first -= exchange.plan.own[std::size_t(exchange.group.rank())].first;
  return own;
}

void contribute_to(const RowExchange& exchange, std::size_t chunk, float* slot,
                   const Contribute& contribute) {
  for (const RowRun& run : runs_of(exchange.plan.chunks[chunk])) {
    contribute(run.rows, slot + row_offset(run.at, exchange.width));
  }
}

/// Where in the chunk's slot its sums of own rows will be.
float* own_in(const RowExchange& exchange, std::size_t chunk, float* slot) {
  const RowPlan& plan = exchange.plan;
  const int at = plan.dealt ? place_in(plan.chunks[chunk], exchange.group.rank()) : 0;
  return slot + row_offset(at, exchange.width);
}

Work start_sum(const RowExchange& exchange, std::size_t chunk, std::span<float> slot, float* own) {
  if (!exchange.plan.dealt) {
    return exchange.group.sum(slot);
  }
  const auto counts = counts_of(exchange.plan.chunks[chunk].pieces, exchange.width);
  return exchange.group.scatter_sum(slot, own, counts);
}

/// A chunk's rows of other ranks, from its slot to where they belong.
void spread(const RowExchange& exchange, std::size_t chunk, const float* slot, float* whole) {
  const int width = exchange.width;
  for (const RowRun& run : runs_of_others(exchange.plan.chunks[chunk], exchange.group.rank())) {
    std::copy_n(slot + row_offset(run.at, width), row_elements(run.rows.count, width),
                whole + row_offset(run.rows.first, width));
  }
}

}  // namespace

InFlight::~InFlight() {
  for (std::size_t index = 0; index < works_.size(); ++index) {
    try {
      wait(index);
    } catch (const std::exception& error) {
      log().debug("rows of a tensor parallel layer were given up: {}", error.what());
    }
  }
}

void InFlight::wait(std::size_t index) { std::exchange(works_[index], Work()).wait(); }

Work InFlight::release() { return all_of(std::exchange(works_, {})); }

void sum_rows(const RowExchange& exchange, const Contribute& contribute, const TakeSums& take) {
  const std::size_t chunks = exchange.plan.chunks.size();
  InFlight flight;
  const auto finish = [&](std::size_t chunk) {
    flight.wait(chunk);
    take(own_of(exchange, chunk), own_in(exchange, chunk, slot_of(exchange, chunk).data()));
  };
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk >= under_way) {
      finish(chunk - under_way);
    }
    const std::span<float> slot = slot_of(exchange, chunk);
    contribute_to(exchange, chunk, slot.data(), contribute);
    flight.add(start_sum(exchange, chunk, slot, own_in(exchange, chunk, slot.data())));
  }
  for (std::size_t chunk = chunks - std::min(chunks, under_way); chunk < chunks; ++chunk) {
    finish(chunk);
  }
}

Work start_sums(const RowExchange& exchange, const Contribute& contribute, float* own) {
  InFlight flight;
  for (std::size_t chunk = 0; chunk < exchange.plan.chunks.size(); ++chunk) {
    float* const sums = own + row_offset(own_of(exchange, chunk).first, exchange.width);
    if (!exchange.plan.dealt) {
      // Every rank has all sums: they are made where they will be.
      contribute_to(exchange, chunk, sums, contribute);
      flight.add(start_sum(exchange, chunk,
                           {sums, row_elements(exchange.plan.chunks[chunk].rows, exchange.width)},
                           sums));
      continue;
    }
    if (chunk >= under_way) {
      flight.wait(chunk - under_way);
    }
    const std::span<float> slot = slot_of(exchange, chunk);
    contribute_to(exchange, chunk, slot.data(), contribute);
    flight.add(start_sum(exchange, chunk, slot, sums));
  }
  return flight.release();
}

void gather_rows(const RowExchange& exchange, const float* own, float* whole,
                 const std::function<void(Part rows)>& use) {
  const RowPlan& plan = exchange.plan;
  const int rank = exchange.group.rank(), width = exchange.width;
  const Part mine = plan.own[std::size_t(rank)];
  if (!plan.dealt) {
    use(mine);
    return;
  }
  const std::size_t chunks = plan.chunks.size();
  InFlight flight;
  const auto start = [&](std::size_t chunk) {
    const float* const part = own + row_offset(own_of(exchange, chunk).first, width);
    flight.add(exchange.group.gather(part, slot_of(exchange, chunk),
                                     counts_of(plan.chunks[chunk].pieces, width)));
  };
  if (chunks == 1) {
    // The pieces lie as they shall: no slot in between.
    flight.add(start_gather(exchange, own, whole));
  } else {
    for (std::size_t chunk = 0; chunk < under_way; ++chunk) {
      start(chunk);
    }
    std::copy_n(own, row_elements(mine.count, width), whole + row_offset(mine.first, width));
  }
  if (mine.count > 0) {
    use(mine);
  }
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    flight.wait(chunk);
    if (chunks > 1) {
      spread(exchange, chunk, slot_of(exchange, chunk).data(), whole);
    }
    if (chunk + under_way < chunks) {
      start(chunk + under_way);
    }
    for (const RowRun& run : runs_of_others(plan.chunks[chunk], rank)) {
      use(run.rows);
    }
  }
}

Work start_gather(const RowExchange& exchange, const float* own, float* whole) {
  const RowPlan& plan = exchange.plan;
  const Part mine = plan.own[std::size_t(exchange.group.rank())];
  // Own rows lie at their block, so they may be read while the others come.
  float* const block = whole + row_offset(mine.first, exchange.width);
  std::copy_n(own, row_elements(mine.count, exchange.width), block);
  const std::size_t count = row_elements(plan.own.back().end(), exchange.width);
  return exchange.group.gather(block, {whole, count}, counts_of(plan.own, exchange.width));
}

}  // namespace sprat::tensor
