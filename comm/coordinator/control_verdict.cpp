// The payloads of verdicts.
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

/// Two ranks, the length of the first signature, both signatures.
Blob encode(const Disagreement& disagreement) {
  Blob out = encode_words({disagreement.first, disagreement.second,
                           static_cast<int>(disagreement.first_signature.size())});
  append(out, disagreement.first_signature.data(), disagreement.first_signature.size());
  append(out, disagreement.second_signature.data(), disagreement.second_signature.size());
  return out;
}

Disagreement decode_disagreement(const Blob& payload) {
  constexpr std::size_t header = 3 * sizeof(std::int32_t);
  if (payload.size() < header) {
    return {};
  }
  const auto words = decode_words(Blob(payload.begin(), payload.begin() + header));
  const auto length = static_cast<std::size_t>(words[2]);
  if (words[2] < 0 || length > payload.size() - header) {
    return {};
  }
  const auto middle = payload.begin() + static_cast<std::ptrdiff_t>(header + length);
  return {words[0], words[1], Blob(payload.begin() + header, middle), Blob(middle, payload.end())};
}

}  // namespace sprat::comm
