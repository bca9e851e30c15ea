#include "comm/coordinator/survivors.hpp"

#include <algorithm>
#include <cstring>

namespace sprat::comm {

Blob encode(const Testimony& testimony) {
  std::vector<std::int32_t> words = {static_cast<std::int32_t>(testimony.generation)};
  words.insert(words.end(), testimony.members.begin(), testimony.members.end());
  Blob blob(words.size() * sizeof words[0]);
  std::memcpy(blob.data(), words.data(), blob.size());
  return blob;
}

std::optional<Testimony> decode_testimony(const Blob& blob) {
  std::vector<std::int32_t> words(blob.size() / sizeof(std::int32_t));
  if (words.empty() || blob.size() % sizeof words[0] != 0) {
    return std::nullopt;
  }
  std::memcpy(words.data(), blob.data(), blob.size());
  return Testimony{static_cast<std::uint32_t>(words[0]), {words.begin() + 1, words.end()}};
}

std::vector<int> survivors(const std::vector<Blob>& testimonies) {
  Testimony latest;
  std::vector<int> came;
  for (int rank = 0; rank < static_cast<int>(testimonies.size()); ++rank) {
    auto theirs = decode_testimony(testimonies[rank]);
    if (!theirs) {
      continue;
    }
    if (came.empty() || theirs->generation > latest.generation) {
      latest = std::move(*theirs);
    }
    came.push_back(rank);
  }
  // The latest generation decides: a rank that slept through a shrink is no member any more, and is
  // not taken back.
  std::erase_if(came, [&](int rank) { return std::ranges::count(latest.members, rank) == 0; });
  return came;
}

}  // namespace sprat::comm
