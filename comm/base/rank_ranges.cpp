#include "comm/base/rank_ranges.hpp"

#include <cstdint>

namespace sprat::comm {
namespace {

constexpr std::size_t word_bytes = 4;

void put(Blob& out, int rank) {
  for (std::size_t byte = 0; byte < word_bytes; ++byte) {
    out.push_back(static_cast<std::byte>((static_cast<std::uint32_t>(rank) >> (8 * byte)) & 0xff));
  }
}

std::uint32_t word_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t byte = 0; byte < word_bytes; ++byte) {
    word |= std::to_integer<std::uint32_t>(bytes[at + byte]) << (8 * byte);
  }
  return word;
}

}  // namespace

Blob encode_ranks(std::span<const int> ranks) {
  Blob out;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t last = begin;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    put(out, ranks[begin]);
    put(out, ranks[last]);
    begin = last + 1;
  }
  return out;
}

std::optional<std::vector<int>> decode_ranks(std::span<const std::byte> bytes, int size) {
  if (bytes.size() % (2 * word_bytes) != 0) {
    return std::nullopt;
  }
  std::vector<int> ranks;
  // A range that touches the one before would have been written as one with it: each list has one
  // form, so that what is read can be compared as bytes.
  std::uint64_t free_from = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 2 * word_bytes) {
    const std::uint64_t first = word_at(bytes, at), last = word_at(bytes, at + word_bytes);
    if (first < free_from || last < first || last >= static_cast<std::uint64_t>(size)) {
      return std::nullopt;
    }
    for (std::uint64_t rank = first; rank <= last; ++rank) {
      ranks.push_back(static_cast<int>(rank));
    }
    free_from = last + 2;
  }
  return ranks;
}

}  // namespace sprat::comm
