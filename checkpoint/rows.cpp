#include "checkpoint/rows.hpp"

#include <algorithm>
#include <numeric>

#include "checkpoint/agreement.hpp"

namespace sprat::fsdp {
namespace {

std::span<const float> held_range(const ModelState& held, const PartRange& range) {
  return held.units[range.unit].values[range.state].subspan(range.offset, range.count);
}

/// What this rank sends, to one writer after the other.
struct Outgoing {
  std::vector<float> values;
  std::vector<std::size_t> counts;  // by rank
};

Outgoing outgoing(Communicator& world, const ModelState& held, const std::vector<SavedFile>& plan) {
  Outgoing out{.values = {}, .counts = std::vector<std::size_t>(world.size(), 0)};
  for (const SavedFile& file : plan) {  // ascending by writer
    for (const SavedBox& box : file.boxes) {
      for (const PartRange& range : box.ranges) {
        if (range.rank == world.rank() && range.rank != file.writer) {
          const auto values = held_range(held, range);
          out.values.insert(out.values.end(), values.begin(), values.end());
          out.counts[static_cast<std::size_t>(file.writer)] += range.count;
        }
      }
    }
  }
  return out;
}

/// Elements that each rank sends to this one.
std::vector<std::size_t> incoming_counts(Communicator& world, const std::vector<SavedFile>& plan) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()), 0);
  for (const SavedFile& file : plan) {
    for (const SavedBox& box : file.boxes) {
      for (const PartRange& range : box.ranges) {
        if (file.writer == world.rank() && range.rank != file.writer) {
          counts[static_cast<std::size_t>(range.rank)] += range.count;
        }
      }
    }
  }
  return counts;
}

}  // namespace

GatheredRows gather_rows(Communicator& world, const ModelState& held,
                         const std::vector<SavedFile>& plan) {
  Outgoing out;
  GatheredRows rows;
  const std::vector<std::size_t> counts = incoming_counts(world, plan);
  agree(world, outcome_of([&] {  // memory may be short on one rank alone
          out = outgoing(world, held, plan);
          rows.received.resize(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
        }));
  world.all_to_allv(elements(out.values), elements(rows.received), out.counts, counts).wait();

  std::vector<std::size_t> next(counts.size());  // of each sender, in what was received
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), std::size_t{0});
  for (const SavedFile& file : plan) {
    if (file.writer != world.rank()) {
      continue;
    }
    auto& views = rows.files.emplace_back();
    for (const SavedBox& box : file.boxes) {
      for (const PartRange& range : box.ranges) {
        if (range.rank == file.writer) {
          views.push_back(held_range(held, range));
        } else {
          std::size_t& at = next[static_cast<std::size_t>(range.rank)];
          views.push_back(std::span<const float>(rows.received).subspan(at, range.count));
          at += range.count;
        }
      }
    }
  }
  return rows;
}

void take_snapshot(GatheredRows& rows, std::vector<float>& memory) {
  std::size_t count = 0;
  for (const auto& views : rows.files) {
    for (const auto& view : views) {
      count += view.size();
    }
  }
  memory.resize(count);
  std::size_t at = 0;
  for (auto& views : rows.files) {
    const std::size_t begin = at;
    for (const auto& view : views) {
      std::ranges::copy(view, memory.begin() + static_cast<std::ptrdiff_t>(at));
      at += view.size();
    }
    views = {std::span<const float>(memory).subspan(begin, at - begin)};
  }
  rows.received = std::vector<float>();  // "= {}" would keep its memory
}

}  // namespace sprat::fsdp
