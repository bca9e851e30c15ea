// What ranks and the coordinator put into payloads, and into memory that a host shares: read within
// bounds or refused, and the same once it is said again.
#include <cstring>

#include "comm/base/rank_ranges.hpp"
#include "comm/coordinator/control_frame.hpp"
#include "comm/coordinator/gathering.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {

/// The input is tried as each of them.
bool run_rank_words(std::span<const std::byte> input) {
  constexpr int size = 1000;
  const comm::Blob payload(input.begin(), input.end());
  bool understood = false;
  if (const auto ranks = comm::decode_ranks(input, size)) {
    understood = true;
    expect(ranks->size() <= size, "no more ranks than there are");
    for (std::size_t at = 0; at < ranks->size(); ++at) {
      expect((*ranks)[at] >= 0 && (*ranks)[at] < size, "ranks are of the job");
      expect(at == 0 || (*ranks)[at - 1] < (*ranks)[at], "ranks ascend");
    }
    expect(comm::encode_ranks(*ranks) == payload, "a list of ranks has one form");
  }
  if (const auto part = comm::decode_gather_part(payload)) {
    understood = true;
    expect(comm::encode(*part) == payload, "a part comes back");
  }
  if (const auto result = comm::decode_gather_result(payload)) {
    understood = true;
    expect(result->ranks.size() == result->blobs.size(), "each rank that came has a part");
    expect(comm::decode_gather_result(comm::encode(*result)) == result, "a result comes back");
  }
  const comm::Lateness lateness = comm::decode_lateness(payload);
  expect(comm::decode_lateness(comm::encode(lateness)) == lateness, "who is late comes back");
  understood |= comm::encode(lateness) == payload;
  if (const auto parts = comm::decode_unpacked(input)) {
    understood = true;
    const comm::Blob again = comm::encode_unpacked(*parts);
    expect(
        again.size() <= input.size() && std::memcmp(again.data(), input.data(), again.size()) == 0,
        "parts begin what was read");
  }
  return understood;
}

}  // namespace sprat::fuzz
