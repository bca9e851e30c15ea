// The payload of a verdict.
#include <cstring>

#include "comm/coordinator/rendezvous.hpp"

namespace sprat::comm {
namespace {

void append(Blob& out, const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  out.insert(out.end(), first, first + bytes);
}

/// i32 each.
Blob encode_words(const std::vector<std::int32_t>& words) {
  Blob out(words.size() * sizeof(std::int32_t));
  if (!words.empty()) {
    std::memcpy(out.data(), words.data(), out.size());
  }
  return out;
}

std::vector<int> decode_words(const Blob& payload) {
  std::vector<int> ranks;
  for (std::size_t at = 0; at + sizeof(std::int32_t) <= payload.size();
       at += sizeof(std::int32_t)) {
    std::int32_t rank = 0;
    std::memcpy(&rank, payload.data() + at, sizeof rank);
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

/// How many are late, then the late ones, then those that are silent.
Blob encode(const Lateness& lateness) {
  Blob out = encode_words({static_cast<int>(lateness.late.size())});
  for (const auto* ranks : {&lateness.late, &lateness.silent}) {
    const Blob words = encode_words(*ranks);
    append(out, words.data(), words.size());
  }
  return out;
}

Lateness decode_lateness(const Blob& payload) {
  const std::vector<int> words = decode_words(payload);
  // The bytes come from another process: a count that does not fit gives an empty value.
  if (words.empty() || words[0] < 0 || static_cast<std::size_t>(words[0]) >= words.size()) {
    return {};
  }
  const auto middle = words.begin() + 1 + words[0];
  return {{words.begin() + 1, middle}, {middle, words.end()}};
}

}  // namespace sprat::comm
