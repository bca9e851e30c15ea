// The table of block formats, every file of collectives/block_formats/ in order, and what is done
// with any of them.
#include "collectives/kernels/block_format.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "collectives/kernels/canonical_tree.hpp"
#include "collectives/kernels/reduce_environment.hpp"
#include "comm/base/check.hpp"

// One entry a file; a test compares the list with the folder.
#define SPRAT_BLOCK_FORMATS(entry) entry(f8e4m3) entry(f8e5m2) entry(i8)

namespace sprat {
namespace collectives {

#define SPRAT_DECLARE(file) extern const BlockFormat file##_block_format;
SPRAT_BLOCK_FORMATS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const BlockFormat* const> all_block_formats() noexcept {
#define SPRAT_ADDRESS(file) &file##_block_format,
  static constexpr std::array formats = {SPRAT_BLOCK_FORMATS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return formats;
}

const BlockFormat* block_format_of(DType wire) noexcept {
  for (const BlockFormat* format : all_block_formats()) {
    if (format->dtype == wire) {
      return format;
    }
  }
  return nullptr;
}

namespace {

/// Blocks that are added or compensated at a time: what they decode to stays in the cache.
constexpr std::size_t chunk_elements = 8 * wire_block_elements;
using Chunk = std::array<float, chunk_elements>;

const BlockFormat& checked_format(DType wire, std::size_t count, std::size_t bytes) {
  const BlockFormat* format = block_format_of(wire);
  require(format != nullptr, "a wire of ", name(wire),
          " has no blocks with scales; i8, f8e4m3 and f8e5m2 have");
  require(bytes == encoded_bytes(count), count, " numbers encoded as ", name(wire), " are ",
          encoded_bytes(count), " bytes, not ", bytes);
  return *format;
}

/// Calls `body` with offset and length of each chunk.
template <class Body>
void for_each_chunk(std::size_t count, const Body& body) {
  for (std::size_t done = 0; done < count; done += chunk_elements) {
    body(done, std::min(chunk_elements, count - done));
  }
}

/// One chunk of the sum of contributions [ranks.first, ranks.last).
void add_tree(const BlockFormat& format, std::span<const std::span<const std::byte>> contributions,
              RankRange ranks, std::size_t offset, std::span<float> sum) {
  if (ranks.size() == 1) {
    const auto from = contributions[static_cast<std::size_t>(ranks.first)];
    return format.decode(from.data() + encoded_bytes(offset), sum.size(), sum.data());
  }
  const int middle = split_point(ranks);
  add_tree(format, contributions, {ranks.first, middle}, offset, sum);
  Chunk right;
  const std::span<float> others = std::span(right).first(sum.size());
  add_tree(format, contributions, {middle, ranks.last}, offset, others);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += others[i];
  }
}

}  // namespace
}  // namespace collectives

bool has_block_scales(DType wire) noexcept { return collectives::block_format_of(wire) != nullptr; }

void encode(DType wire, std::span<const float> values, std::span<std::byte> to) {
  const auto& format = collectives::checked_format(wire, values.size(), to.size());
  const collectives::PlainArithmetic mode;
  format.encode(values.data(), values.size(), to.data());
}

void encode_with_feedback(DType wire, std::span<const float> values, std::span<float> residual,
                          std::span<std::byte> to) {
  const auto& format = collectives::checked_format(wire, values.size(), to.size());
  require(residual.size() == values.size(), values.size(), " numbers have a residual of ",
          residual.size());
  const collectives::PlainArithmetic mode;
  collectives::Chunk wanted, sent;
  collectives::for_each_chunk(values.size(), [&](std::size_t offset, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      wanted[i] = values[offset + i] + residual[offset + i];
    }
    std::byte* const block = to.data() + encoded_bytes(offset);
    format.encode(wanted.data(), count, block);
    format.decode(block, count, sent.data());
    for (std::size_t i = 0; i < count; ++i) {
      const float lost = wanted[i] - sent[i];
      residual[offset + i] = std::isfinite(lost) ? lost : 0.0f;
    }
  });
}

void decode(DType wire, std::span<const std::byte> from, std::span<float> values) {
  const auto& format = collectives::checked_format(wire, values.size(), from.size());
  const collectives::PlainArithmetic mode;
  format.decode(from.data(), values.size(), values.data());
}

void sum_encoded(DType wire, std::span<const std::span<const std::byte>> contributions,
                 std::span<float> sum) {
  require(!contributions.empty(), "sum_encoded() of no contribution; it takes one or more");
  for (const auto& from : contributions) {
    collectives::checked_format(wire, sum.size(), from.size());
  }
  const auto& format = *collectives::block_format_of(wire);
  const collectives::PlainArithmetic mode;
  collectives::for_each_chunk(sum.size(), [&](std::size_t offset, std::size_t count) {
    collectives::add_tree(format, contributions, {0, static_cast<int>(contributions.size())},
                          offset, sum.subspan(offset, count));
  });
}

}  // namespace sprat
