#include "io/order/visit_order.hpp"

#include <algorithm>

#include "comm/base/check.hpp"
#include "io/order/order_key.hpp"
#include "sprat/io.hpp"

namespace sprat::io {
namespace {

constexpr std::uint64_t most_chunks = std::uint64_t{1} << 24;  // tables of 128 MiB

Permutation chunk_permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t chunks) {
  return {order_key(seed, DrawnFor::chunks), epoch, chunks};
}

/// Where the chunk at each place of an epoch's order begins, if elements are counted in that order.
ChunkBegins permuted_begins(const ChunkBegins& chunks, std::uint64_t seed, std::uint64_t epoch) {
  const std::uint64_t count = chunks.size() - 1;
  const Permutation chunk_at = chunk_permutation(seed, epoch, count);
  ChunkBegins begins = {0};
  begins.reserve(chunks.size());
  for (std::uint64_t place = 0; place < count; ++place) {
    const std::uint64_t chunk = chunk_at(place);
    begins.push_back(begins.back() + chunks[chunk + 1] - chunks[chunk]);
  }
  return begins;
}

/// The place of the chunk that holds the element at `position`. Of chunks that begin there the last
/// one, since those before it are empty.
std::uint64_t chunk_place(const ChunkBegins& begins, std::uint64_t position) {
  return static_cast<std::uint64_t>(std::ranges::upper_bound(begins, position) - begins.begin()) -
         1;
}

}  // namespace

ChunkBegins equal_chunks(std::uint64_t count, std::uint64_t chunk) {
  require(chunk > 0 && (count - 1) / chunk < most_chunks, "chunks of ", chunk, " make more than ",
          most_chunks, " of ", count, ": take chunks of at least ", count / most_chunks + 1,
          ", or shuffle=full");
  ChunkBegins begins;
  for (std::uint64_t begin = 0; begin < count; begin += chunk) {
    begins.push_back(begin);
  }
  begins.push_back(count);
  return begins;
}

ChunkBegins file_chunks(const RecordTable& table) {
  ChunkBegins begins(std::size_t{table.file_count()} + 1);
  for (std::uint32_t file = 0; file <= table.file_count(); ++file) {
    begins[file] = table.first_record(file);
  }
  return begins;
}

VisitOrder::VisitOrder(VisitOptions options)
    : shuffle_(options.shuffle), seed_(options.seed), count_(options.count) {
  require(count_ > 0, "there is nothing to visit");
  if (shuffle_ != Shuffle::chunks) {
    return;
  }
  require(options.mixed_chunks > 0, "mixed_chunks is 0: at least one chunk is read at a time");
  levels_ = std::make_unique<const Levels>(std::move(options.chunks), seed_, options.mixed_chunks);
}

// It never moves, since its cache does not, so the cache's function may hold on to it.
VisitOrder::Levels::Levels(ChunkBegins all_chunks, std::uint64_t order_seed, std::uint64_t mixed)
    : chunks(std::move(all_chunks)),
      seed(order_seed),
      mixed_chunks(mixed),
      permuted([this](std::uint64_t epoch) { return permuted_begins(chunks, seed, epoch); }) {}

std::uint64_t VisitOrder::operator()(std::uint64_t epoch, std::uint64_t index) const {
  require(index < count_, "element ", index, " is outside an epoch of ", count_);
  switch (shuffle_) {
    case Shuffle::none:
      return index;
    case Shuffle::full:
      return Permutation(seed_, epoch, count_)(index);
    case Shuffle::chunks:
      return in_chunks(epoch, index);
  }
  throw Error(ErrorCode::invalid_argument, "no such shuffle");
}

std::uint64_t VisitOrder::in_chunks(std::uint64_t epoch, std::uint64_t index) const {
  const std::shared_ptr<const ChunkBegins> begins = levels_->permuted.of(epoch);
  const std::uint64_t chunks = begins->size() - 1;
  const std::uint64_t window = chunk_place(*begins, index) / levels_->mixed_chunks;
  const std::uint64_t first = window * levels_->mixed_chunks;
  const std::uint64_t last = first + std::min(levels_->mixed_chunks, chunks - first);
  const std::uint64_t begin = (*begins)[first];
  // Each window of each epoch has a key of its own.
  const Permutation within(order_key(levels_->seed, DrawnFor::within_chunks),
                           order_key(epoch) + window, (*begins)[last] - begin);
  const std::uint64_t position = begin + within(index - begin);
  const std::uint64_t place = chunk_place(*begins, position);
  const std::uint64_t chunk = chunk_permutation(levels_->seed, epoch, chunks)(place);
  return levels_->chunks[chunk] + position - (*begins)[place];
}

}  // namespace sprat::io
