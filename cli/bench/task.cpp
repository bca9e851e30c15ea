// Runs one collective on patterned buffers and compares every element of the result.
#include "cli/bench/task.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace sprat::cli {
namespace {

constexpr auto guard_byte = std::byte{0xa5};
constexpr auto poison_byte = std::byte{0xee};
constexpr int root = 0;

struct Blocks {
  std::size_t in, out;
};

/// How many blocks of `count` elements a rank passes.
Blocks blocks_of(Collective collective, int ranks) noexcept {
  const auto all = static_cast<std::size_t>(ranks);
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::sendrecv:
      return {1, 1};
    case Collective::all_gather:
      return {1, all};
    case Collective::reduce_scatter:
      return {all, 1};
    case Collective::all_to_all:
      return {all, all};
  }
  return {1, 1};
}

int previous(int rank, int ranks) { return (rank + ranks - 1) % ranks; }

Pattern input_of(Collective collective, DType dtype, ReduceOp op, int ranks, int rank) {
  return reduces(collective) ? contribution_of(dtype, op, ranks, rank) : bits_of(dtype, rank);
}

std::vector<Pattern> results_of(Collective collective, DType dtype, ReduceOp op, int ranks,
                                int rank) {
  std::vector<Pattern> results;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      results.push_back(reduction_of(dtype, op, ranks));
      break;
    case Collective::broadcast:
      results.push_back(bits_of(dtype, root));
      break;
    case Collective::sendrecv:
      results.push_back(bits_of(dtype, previous(rank, ranks)));
      break;
    case Collective::all_gather:
    case Collective::all_to_all:
      for (int source = 0; source < ranks; ++source) {
        results.push_back(bits_of(dtype, source));
      }
      break;
  }
  return results;
}

}  // namespace

const char* name(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::sendrecv:
      return "sendrecv";
  }
  return "unknown collective";
}

std::span<const Collective> all_collectives() noexcept {
  static constexpr std::array collectives = {Collective::all_reduce,     Collective::all_gather,
                                             Collective::reduce_scatter, Collective::broadcast,
                                             Collective::all_to_all,     Collective::sendrecv};
  return collectives;
}

bool reduces(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}

bool can_be_in_place(Collective collective) noexcept { return collective != Collective::sendrecv; }

double bus_factor(Collective collective, int ranks) noexcept {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return (n - 1) / n;
    case Collective::broadcast:
    case Collective::sendrecv:
      return 1;
  }
  return 1;
}

std::size_t count_for(Collective collective, DType dtype, int ranks, std::size_t bytes) noexcept {
  const Blocks blocks = blocks_of(collective, ranks);
  return bytes / size_of(dtype) / std::max(blocks.in, blocks.out);
}

std::size_t bytes(const Task& task, int ranks) noexcept {
  const Blocks blocks = blocks_of(task.collective, ranks);
  return task.count * size_of(task.dtype) * std::max(blocks.in, blocks.out);
}

Buffers::Buffers(Kind kind, std::size_t bytes) {
  for (int i = 0; i < 2; ++i) {
    const std::size_t total = bytes + 2 * guard_bytes;
    if (kind == Kind::shared_memory) {
      shared_[i] = Memory(total);
      start_[i] = static_cast<std::byte*>(shared_[i].data());
    } else {
      private_[i].resize(total);
      start_[i] = private_[i].data();
    }
  }
}

void Buffers::set_guards(std::size_t bytes) {
  for (std::byte* start : start_) {
    std::fill_n(start, guard_bytes, guard_byte);
    std::fill_n(start + guard_bytes + bytes, guard_bytes, guard_byte);
  }
}

std::uint64_t Buffers::broken_guards(std::size_t bytes) const {
  std::uint64_t broken = 0;
  for (const std::byte* start : start_) {
    for (const std::byte* zone : {start, start + guard_bytes + bytes}) {
      broken += static_cast<std::uint64_t>(
          std::count_if(zone, zone + guard_bytes, [](std::byte b) { return b != guard_byte; }));
    }
  }
  return broken;
}

Oracle::Oracle(Collective collective, DType dtype, ReduceOp op, int ranks, int rank)
    : input(input_of(collective, dtype, op, ranks, rank)),
      results(results_of(collective, dtype, op, ranks, rank)) {}

Run::Run(Communicator& world, const Task& task, const Oracle& oracle, Buffers& buffers)
    : world_(world), task_(task), oracle_(oracle), buffers_(buffers) {
  const Blocks blocks = blocks_of(task.collective, world.size());
  in_count_ = blocks.in * task.count;
  out_count_ = blocks.out * task.count;
  in_ = buffers.input();
  out_ = buffers.output();
  if (task.collective == Collective::broadcast) {
    in_ = out_;
  } else if (task.in_place) {
    const std::size_t mine =
        static_cast<std::size_t>(world.rank()) * task.count * size_of(task.dtype);
    in_ = out_ + (blocks.in < blocks.out ? mine : 0);
    out_ = out_ + (blocks.out < blocks.in ? mine : 0);
  }
}

void Run::prepare() {
  const std::size_t span = bytes(task_, world_.size());
  buffers_.set_guards(span);
  std::fill_n(buffers_.output(), span, poison_byte);
  oracle_.input.fill(in_, 0, in_count_);
}

void Run::operator()() {
  const ConstElements in(in_, in_count_, task_.dtype);
  const Elements out{out_, out_count_, task_.dtype};
  const Options blocking{.timeout = {}, .blocking = true};
  switch (task_.collective) {
    case Collective::all_reduce:
      world_.all_reduce(in, out, task_.op, blocking).wait();
      return;
    case Collective::all_gather:
      world_.all_gather(in, out, blocking).wait();
      return;
    case Collective::reduce_scatter:
      world_.reduce_scatter(in, out, task_.op, blocking).wait();
      return;
    case Collective::broadcast:
      world_.broadcast(out, root, blocking).wait();
      return;
    case Collective::all_to_all:
      world_.all_to_all(in, out, blocking).wait();
      return;
    case Collective::sendrecv: {
      Work sent = world_.send(in, (world_.rank() + 1) % world_.size());
      world_.recv(out, previous(world_.rank(), world_.size()), 0, blocking).wait();
      sent.wait();
      return;
    }
  }
}

std::uint64_t Run::wrong() const {
  std::uint64_t wrong = buffers_.broken_guards(bytes(task_, world_.size()));
  const auto rank = static_cast<std::size_t>(world_.rank());
  const std::size_t count = task_.count;
  // Where in its result pattern a block starts: at this rank's block of the whole for these two.
  const bool own_block =
      task_.collective == Collective::reduce_scatter || task_.collective == Collective::all_to_all;
  const std::size_t first = own_block ? rank * count : 0;
  const std::byte* block = out_;
  for (const Pattern& result : oracle_.results) {
    wrong += result.wrong(block, first, count);
    block += count * size_of(task_.dtype);
  }
  if (!task_.in_place && task_.collective != Collective::broadcast) {
    wrong += oracle_.input.wrong(in_, 0, in_count_);
  }
  return wrong;
}

}  // namespace sprat::cli
