// Runs one collective on patterned buffers and compares every element of the result.
#include "cli/bench/task.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace sprat::cli {
namespace {

constexpr auto guard_byte = std::byte{0xa5};
constexpr auto poison_byte = std::byte{0xee};

int previous(int rank, int ranks) { return (rank + ranks - 1) % ranks; }

/// Elements of `blocks` before number `index`.
std::size_t before(const std::vector<std::size_t>& blocks, int index) {
  return std::accumulate(blocks.begin(), blocks.begin() + index, std::size_t{0});
}

std::size_t total(const std::vector<std::size_t>& blocks) {
  return before(blocks, static_cast<int>(blocks.size()));
}

/// Block q of what `rank` exchanges is number q - rank of block_counts(): another one on every
/// rank, and as many elements in all.
std::vector<std::size_t> exchanged_blocks(const Task& task, int ranks, int rank) {
  std::vector<std::size_t> blocks = block_counts(task, ranks);
  std::rotate(blocks.begin(), blocks.end() - rank, blocks.end());
  return blocks;
}

std::vector<std::size_t> in_blocks(const Task& task, int ranks, int rank) {
  switch (task.call.shape) {
    case Shape::whole:
      return {task.count};
    case Shape::gathers:
      return {block_counts(task, ranks)[rank]};
    case Shape::scatters:
      return block_counts(task, ranks);
    case Shape::exchanges:
      return exchanged_blocks(task, ranks, rank);
  }
  return {};
}

std::vector<std::size_t> out_blocks(const Task& task, int ranks, int rank) {
  switch (task.call.shape) {
    case Shape::whole:
      return {task.count};
    case Shape::gathers:
      return block_counts(task, ranks);
    case Shape::scatters:
      return {block_counts(task, ranks)[rank]};
    case Shape::exchanges:
      break;
  }
  std::vector<std::size_t> blocks;
  for (int source = 0; source < ranks; ++source) {
    blocks.push_back(exchanged_blocks(task, ranks, source)[rank]);
  }
  return blocks;
}

/// Consecutive elements of one of the oracle's results.
struct Piece {
  int result;
  std::size_t first, count;
};

/// What `rank`'s output is, piece after piece, if `root` was the root.
std::vector<Piece> expected(const Task& task, int ranks, int rank, int root) {
  const std::vector<std::size_t> blocks = out_blocks(task, ranks, rank);
  const int source = has_root(task.call) ? root : previous(rank, ranks);
  const int only = reduces(task.call) ? 0 : source;
  std::vector<Piece> pieces;
  switch (task.call.shape) {
    case Shape::whole:
      return {{only, 0, task.count}};
    case Shape::scatters:
      return {{only, before(block_counts(task, ranks), rank), blocks[0]}};
    case Shape::gathers:
      for (int r = 0; r < ranks; ++r) {
        pieces.push_back({r, 0, blocks[r]});
      }
      return pieces;
    case Shape::exchanges:
      for (int r = 0; r < ranks; ++r) {
        pieces.push_back({r, before(in_blocks(task, ranks, r), rank), blocks[r]});
      }
      return pieces;
  }
  return pieces;
}

/// Nobody but the root has a result.
bool only_root_receives(const BenchCall& call) {
  return has_root(call) && (reduces(call) || call.shape == Shape::gathers);
}

Pattern input_of(const BenchCall& call, DType dtype, ReduceOp op, int ranks, int rank) {
  return reduces(call) ? contribution_of(dtype, op, ranks, rank) : bits_of(dtype, rank);
}

std::vector<Pattern> results_of(const BenchCall& call, DType dtype, ReduceOp op, int ranks) {
  if (reduces(call)) {
    return {reduction_of(dtype, op, ranks)};
  }
  std::vector<Pattern> results;
  for (int rank = 0; rank < ranks; ++rank) {
    results.push_back(bits_of(dtype, rank));
  }
  return results;
}

/// Blocks in the larger of input and output that `count` is the length of.
std::size_t counted_blocks(const BenchCall& call, int ranks) noexcept {
  const bool one = call.shape == Shape::whole || call.uneven;
  return one ? 1 : static_cast<std::size_t>(ranks);
}

}  // namespace

std::size_t count_for(const BenchCall& call, DType dtype, int ranks, std::size_t bytes) noexcept {
  return bytes / size_of(dtype) / counted_blocks(call, ranks);
}

std::size_t bytes(const Task& task, int ranks) noexcept {
  return task.count * size_of(task.dtype) * counted_blocks(task.call, ranks);
}

std::vector<std::size_t> block_counts(const Task& task, int ranks) {
  if (!task.call.uneven) {
    return std::vector<std::size_t>(static_cast<std::size_t>(ranks), task.count);
  }
  // One block in three is empty, since empty blocks are where uneven calls go wrong. Ends are
  // rounded and not lengths, so that the blocks add up to the count.
  constexpr std::array<std::size_t, 3> weights = {1, 2, 0};
  std::vector<std::size_t> ends;  // first of weights, then of elements
  std::size_t weight = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    ends.push_back(weight += weights[rank % weights.size()]);
  }
  for (std::size_t& end : ends) {
    end = task.count * end / weight;
  }
  std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
  return ends;
}

Buffers::Buffers(Kind kind, std::size_t bytes) {
  for (int i = 0; i < 2; ++i) {
    const std::size_t total = bytes + 2 * guard_bytes;
    if (kind == Kind::shared_memory) {
      shared_[i] = Memory(total);
      start_[i] = static_cast<std::byte*>(shared_[i].data());
    } else {
      try {
        private_[i].resize(total);
      } catch (const std::exception&) {  // bad_alloc, or more than a vector can ever hold
        throw Error(ErrorCode::unavailable,
                    fmt::format("this process cannot have two buffers of {} bytes", bytes));
      }
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

Oracle::Oracle(const BenchCall& call, DType dtype, ReduceOp op, int ranks, int rank)
    : input(input_of(call, dtype, op, ranks, rank)), results(results_of(call, dtype, op, ranks)) {}

Run::Run(Communicator& world, const Task& task, const Oracle& oracle, Buffers& buffers)
    : world_(world),
      task_(task),
      oracle_(oracle),
      buffers_(buffers),
      in_blocks_(in_blocks(task, world.size(), world.rank())),
      out_blocks_(out_blocks(task, world.size(), world.rank())),
      in_count_(total(in_blocks_)),
      out_count_(total(out_blocks_)),
      in_(buffers.input()),
      out_(buffers.output()) {
  if (task.call.is(Collective::broadcast)) {
    in_ = out_;
  } else if (task.in_place) {
    const Shape shape = task.call.shape;
    const std::size_t mine =
        before(block_counts(task, world.size()), world.rank()) * size_of(task.dtype);
    in_ = out_ + (shape == Shape::gathers ? mine : 0);
    out_ = out_ + (shape == Shape::scatters ? mine : 0);
  }
}

void Run::prepare() {
  const std::size_t span = bytes(task_, world_.size());
  buffers_.set_guards(span);
  std::fill_n(buffers_.output(), span, poison_byte);
  oracle_.input.fill(in_, 0, in_count_);
  calls_ = 0;
}

void Run::operator()() {
  const int root = root_of(calls_++);
  ConstElements in(in_, in_count_, task_.dtype);
  Elements out{out_, out_count_, task_.dtype};
  if (has_root(task_.call) && world_.rank() != root) {
    const Elements none{nullptr, 0, task_.dtype};
    in = task_.call.shape == Shape::scatters ? none : in;
    out = only_root_receives(task_.call) ? none : out;
  }
  issue(in, out, root);
}

void Run::issue(ConstElements in, Elements out, int root) {
  const Options blocking{.timeout = {}, .blocking = true};
  if (!task_.call.collective) {
    Work sent = world_.send(in, (world_.rank() + 1) % world_.size());
    world_.recv(out, previous(world_.rank(), world_.size()), 0, blocking).wait();
    sent.wait();
    return;
  }
  const auto run = [&] {
    switch (*task_.call.collective) {
      case Collective::all_reduce:
        return world_.all_reduce(in, out, task_.op, blocking);
      case Collective::all_gather:
        return task_.call.uneven ? world_.all_gatherv(in, out, out_blocks_, blocking)
                                 : world_.all_gather(in, out, blocking);
      case Collective::reduce_scatter:
        return task_.call.uneven ? world_.reduce_scatterv(in, out, in_blocks_, task_.op, blocking)
                                 : world_.reduce_scatter(in, out, task_.op, blocking);
      case Collective::broadcast:
        return world_.broadcast(out, root, blocking);
      case Collective::all_to_all:
        return world_.all_to_all(in, out, blocking);
      case Collective::reduce:
        return world_.reduce(in, out, root, task_.op, blocking);
      case Collective::gather:
        return world_.gather(in, out, root, blocking);
      case Collective::scatter:
        return world_.scatter(in, out, root, blocking);
      case Collective::gatherv:
        return world_.gatherv(in, out, out_blocks_, root, blocking);
      case Collective::scatterv:
        return world_.scatterv(in, out, in_blocks_, root, blocking);
      case Collective::all_to_allv:
        return world_.all_to_allv(in, out, in_blocks_, out_blocks_, blocking);
      case Collective::barrier:
        break;  // has no buffers to check, so it is no row of the table
    }
    return Work();
  };
  run().wait();
}

int Run::root_of(std::uint64_t call) const {
  const auto ranks = static_cast<std::uint64_t>(world_.size());
  return static_cast<int>((static_cast<std::uint64_t>(task_.root) + call) % ranks);
}

bool Run::has_result() const {
  const int distance = (world_.rank() - task_.root + world_.size()) % world_.size();
  return !only_root_receives(task_.call) || static_cast<std::uint64_t>(distance) < calls_;
}

std::uint64_t Run::wrong() const {
  std::uint64_t wrong = buffers_.broken_guards(bytes(task_, world_.size()));
  const bool is_broadcast = task_.call.is(Collective::broadcast);
  if (has_result()) {
    // A broadcast's later roots pass on what they had from the first.
    const int root = root_of(is_broadcast || calls_ == 0 ? 0 : calls_ - 1);
    const std::byte* at = out_;
    for (const Piece& piece : expected(task_, world_.size(), world_.rank(), root)) {
      wrong += oracle_.results[piece.result].wrong(at, piece.first, piece.count);
      at += piece.count * size_of(task_.dtype);
    }
  }
  if (!task_.in_place && !is_broadcast) {
    wrong += oracle_.input.wrong(in_, 0, in_count_);
  }
  return wrong;
}

}  // namespace sprat::cli
