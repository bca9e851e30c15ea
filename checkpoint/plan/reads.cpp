#include "checkpoint/plan/reads.hpp"

#include "comm/base/check.hpp"
#include "fsdp/plan/box_range.hpp"

namespace sprat::fsdp {
namespace {

/// Adds a run to the read before it, if both are of one box and the run goes on where that one
/// ends, or lies as far from its last run as that one's runs from each other.
void add_run(std::vector<BoxRead>& reads, std::size_t reads_before, const BoxRead& run) {
  if (reads.size() == reads_before) {
    reads.push_back(run);
    return;
  }
  BoxRead& last = reads.back();
  const std::uint64_t last_from = last.from + (last.times - 1) * last.from_stride;
  const std::uint64_t last_to = last.to + (last.times - 1) * last.to_stride;
  if (last.times == 1 && run.from == last.from + last.count && run.to == last.to + last.count) {
    last.count += run.count;
    return;
  }
  const std::uint64_t from_stride = run.from - last_from, to_stride = run.to - last_to;
  const bool as_before = last.from_stride == from_stride && last.to_stride == to_stride;
  if (run.count == last.count && (last.times == 1 || as_before)) {
    last.from_stride = from_stride;
    last.to_stride = to_stride;
    ++last.times;
    return;
  }
  reads.push_back(run);
}

/// Whether two boxes part along the first dimension: what is mostly so, and cheaply known.
bool are_apart(const Box& a, const Box& first, const Box& last) {
  return !a.offset.empty() && (a.offset[0] + a.extent[0] <= first.offset[0] ||
                               last.offset[0] + last.extent[0] <= a.offset[0]);
}

}  // namespace

std::vector<BoxRead> plan_reads(const StoredTensor& tensor, const Box& part, std::size_t first,
                                std::size_t count) {
  std::vector<BoxRead> reads;
  const std::vector<Box> wanted = boxes_of_range(part, first, count);
  std::uint64_t covered = 0;
  for (std::size_t box = 0; box < tensor.boxes.size() && covered < count; ++box) {
    const Box& stored = tensor.boxes[box].box;
    if (are_apart(stored, wanted.front(), wanted.back())) {
      continue;
    }
    const std::size_t before = reads.size();
    std::uint64_t begin = 0;  // of the wanted box
    for (const Box& to : wanted) {
      for_each_copy(stored, to, [&](BoxCopy copy) {
        const auto length = static_cast<std::uint64_t>(copy.count);
        add_run(reads, before,
                {.box = box,
                 .from = static_cast<std::uint64_t>(copy.from),
                 .to = begin + static_cast<std::uint64_t>(copy.to),
                 .count = length});
        covered += length;
      });
      begin += static_cast<std::uint64_t>(element_count(to));
    }
  }
  need(covered == count, "tensor \"", tensor.name, "\" is not whole in the checkpoint");
  return reads;
}

}  // namespace sprat::fsdp
