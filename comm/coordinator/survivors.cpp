#include "comm/coordinator/survivors.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "comm/base/rank_ranges.hpp"

namespace sprat::comm {

Blob encode(const Testimony& testimony) {
  Blob blob(sizeof testimony.generation);
  std::memcpy(blob.data(), &testimony.generation, blob.size());
  const Blob members = encode_ranks(testimony.members);
  blob.insert(blob.end(), members.begin(), members.end());
  return blob;
}

std::optional<Testimony> decode_testimony(const Blob& blob) {
  constexpr int most_ranks = 1 << 22;  // few bytes may name many, and memory is made for each
  Testimony testimony;
  if (blob.size() < sizeof testimony.generation) {
    return std::nullopt;
  }
  std::memcpy(&testimony.generation, blob.data(), sizeof testimony.generation);
  auto members = decode_ranks(std::span(blob).subspan(sizeof testimony.generation), most_ranks);
  if (!members) {
    return std::nullopt;
  }
  testimony.members = std::move(*members);
  return testimony;
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
  std::erase_if(came, [&](int rank) { return !std::ranges::binary_search(latest.members, rank); });
  return came;
}

}  // namespace sprat::comm
