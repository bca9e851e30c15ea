// A peer of this host that writes what it likes into its own memory: our reads stay within bounds
// and our requests end.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/transports/shm/ring.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {

using namespace comm;

/// Input: the lane's tail and head as u32, then the ring's bytes, over and over.
bool run_ring(std::span<const std::byte> input) {
  if (input.size() < 9) {
    return false;
  }
  constexpr std::size_t lanes = 2;
  struct Memory {
    FrameLane lane[lanes];
  };
  const auto mine = std::make_unique<Memory>(), theirs = std::make_unique<Memory>();
  std::uint32_t tail = 0, head = 0;
  std::memcpy(&tail, input.data(), sizeof tail);
  std::memcpy(&head, input.data() + 4, sizeof head);
  const auto ring = input.subspan(8);
  for (FrameLane& lane : theirs->lane) {
    lane.tail = tail;
    lane.head = head;
    for (std::size_t at = 0; at < FrameLane::ring_bytes; at += ring.size()) {
      std::memcpy(lane.data + at, ring.data(), std::min(ring.size(), FrameLane::ring_bytes - at));
    }
  }
  ShmRingOptions options;
  options.rank = 0;
  options.ranks = {0, 1};
  options.mine = std::as_writable_bytes(std::span(mine->lane));
  options.memory = {options.mine.data(), std::as_bytes(std::span(theirs->lane)).data()};
  options.unexpected_bytes = std::size_t{1} << 20;
  ShmRing transport(options);
  const std::vector<Blob> addresses(2, transport.address());
  transport.connect(addresses);

  constexpr std::size_t guard = 64;
  std::array<std::vector<std::byte>, 3> buffers;
  std::array<MessageRequest, 4> requests;
  for (std::size_t at = 0; at < buffers.size(); ++at) {
    const std::size_t bytes = std::size_t{100} << (6 * at);
    buffers[at].assign(bytes + guard, std::byte{0x5a});
    transport.recv(requests[at], 1, at, std::span(buffers[at]).first(bytes));
  }
  const std::vector<std::byte> message(100'000, std::byte{1});
  transport.send(requests[3], 1, 7, message);
  for (int round = 0; round < 8; ++round) {
    transport.progress();
  }
  const bool sense = std::ranges::count(requests, EPROTO, &MessageRequest::error) == 0;
  for (MessageRequest& request : requests) {
    transport.cancel(request);
    expect(request.state != MessageRequest::State::posted, "a cancelled request has ended");
  }
  for (const auto& buffer : buffers) {
    expect(std::ranges::all_of(std::span(buffer).last(guard),
                               [](std::byte byte) { return byte == std::byte{0x5a}; }),
           "nothing is written behind a buffer");
  }
  return sense;
}

}  // namespace sprat::fuzz
