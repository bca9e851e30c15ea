// Of each range: how many ranks lie between the one before and it, and how many it has beyond its
// first, in numbers of 7 bits a byte, lowest first, with the top bit where more follow. Those of an
// axis of a mesh repeat, so that packing leaves little of them.
#include "comm/base/rank_ranges.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "comm/base/packing.hpp"

namespace sprat::comm {
namespace {

/// Of a number of 32 bits.
constexpr std::size_t most_number_bytes = 5;

void put_rank(Blob& out, int number) {
  auto bits = static_cast<std::uint32_t>(number);
  while (bits >= 0x80) {
    out.push_back(static_cast<std::byte>(bits & 0x7f) | std::byte{0x80});
    bits >>= 7;
  }
  out.push_back(static_cast<std::byte>(bits));
}

/// Takes a number off the front. Null if there is none, or it is written longer than it need be:
/// each list has one form, so that what is read can be compared as bytes.
std::optional<std::uint64_t> take(std::span<const std::byte>& in) {
  std::uint64_t number = 0;
  for (std::size_t at = 0; at < in.size() && at < most_number_bytes; ++at) {
    const auto byte = std::to_integer<std::uint64_t>(in[at]);
    number |= (byte & 0x7f) << (7 * at);
    if (byte < 0x80) {
      in = in.subspan(at + 1);
      return byte == 0 && at > 0 ? std::nullopt : std::optional(number);
    }
  }
  return std::nullopt;
}

/// Null unless there is a range ahead of `size`, and one that does not touch the one before, which
/// would have been written as one with it.
std::optional<std::vector<int>> ranks_of(std::span<const std::byte> ranges, int size) {
  std::vector<int> ranks;
  std::uint64_t free_from = 0;
  while (!ranges.empty()) {
    const auto between = take(ranges), more = take(ranges);
    if (!between || !more || (*between == 0 && !ranks.empty())) {
      return std::nullopt;
    }
    const std::uint64_t first = free_from + *between, last = first + *more;
    if (last >= static_cast<std::uint64_t>(size)) {
      return std::nullopt;
    }
    for (std::uint64_t rank = first; rank <= last; ++rank) {
      ranks.push_back(static_cast<int>(rank));
    }
    free_from = last + 1;
  }
  return ranks;
}

}  // namespace

Blob encode_ranks(std::span<const int> ranks) {
  Blob ranges;
  int free_from = 0;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t last = begin;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    put_rank(ranges, ranks[begin] - free_from);
    put_rank(ranges, ranks[last] - ranks[begin]);
    free_from = ranks[last] + 1;
    begin = last + 1;
  }
  return ranges.empty() ? Blob() : pack(ranges);
}

std::optional<std::vector<int>> decode_ranks(std::span<const std::byte> bytes, int size) {
  if (bytes.empty()) {
    return std::vector<int>();
  }
  // Every other rank at most begins a range, of two numbers.
  const auto ranges = unpack(bytes, (static_cast<std::size_t>(size) + 1) * most_number_bytes);
  if (!ranges || ranges->empty()) {
    return std::nullopt;
  }
  auto ranks = ranks_of(*ranges, size);
  const bool in_its_form = ranks && std::ranges::equal(pack(*ranges), bytes);
  return in_its_form ? std::move(ranks) : std::nullopt;
}

}  // namespace sprat::comm
