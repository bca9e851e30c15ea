// Frames of joined ranks against the coordinator: no sequence of them breaks it, or makes it say
// what is no frame.
#include <chrono>
#include <cstdint>

#include "comm/coordinator/control_frame.hpp"
#include "comm/coordinator/coordinator.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

using namespace comm;

constexpr int ranks = 3;

/// Input: events of a header [what, rank, length as u16], and for a frame its bytes.
class Events {
 public:
  explicit Events(std::span<const std::byte> input) : input_(input) {}
  bool next(int& what, int& rank, std::span<const std::byte>& bytes) {
    if (input_.size() < 4) {
      return false;
    }
    what = at(0);
    rank = at(1) % ranks;
    const std::size_t length = std::min<std::size_t>(at(2) | at(3) << 8, input_.size() - 4);
    bytes = input_.subspan(4, length);
    input_ = input_.subspan(4 + length);
    return true;
  }

 private:
  int at(std::size_t index) const { return std::to_integer<int>(input_[index]); }
  std::span<const std::byte> input_;
};

void check_outputs(Coordinator& coordinator) {
  for (const Coordinator::Output& output : coordinator.take()) {
    expect(!output.to.empty(), "somebody is told");
    for (const int rank : output.to) {
      expect(rank >= 0 && rank < ranks, "who is told is a rank");
    }
    const Blob bytes = encode(output.frame);
    expect(bytes.size() <= frame_header_bytes + max_frame_bytes, "what is said fits into a frame");
    const auto back = decode(std::span(bytes).subspan(frame_header_bytes));
    expect(back && back->index() == output.frame.index(), "what is said can be read");
  }
}

}  // namespace

bool run_control(std::span<const std::byte> input) {
  Coordinator coordinator(ranks, {{"version", "1"}});
  for (int rank = 0; rank < ranks; ++rank) {
    expect(!coordinator.admit({rank, ranks, {{"version", "1"}}}, "here"), "every rank joins");
  }
  Coordinator::Time now{};
  Events events(input);
  int what = 0, rank = 0;
  std::span<const std::byte> bytes;
  bool understood = true;
  while (events.next(what, rank, bytes)) {
    now += std::chrono::milliseconds(7 * (what >> 3));
    const std::optional<Frame> frame = decode(bytes);
    understood &= bytes.empty() || frame.has_value();
    switch (what & 7) {
      case 0:
        coordinator.ended(rank, "it is cut");
        break;
      case 1:
        coordinator.tick(now);
        break;
      case 2:
        coordinator.turned_away("someone");
        coordinator.went_unnamed("somewhere", "it is cut");
        break;
      case 3:
        if (frame && std::holds_alternative<Hello>(*frame)) {
          coordinator.admit(coordinator.numbered(std::get<Hello>(*frame)), "there");
        }
        break;
      default:
        if (frame) {
          coordinator.received(rank, *frame, now);
        }
    }
    if (frame) {
      const Blob again = encode(*frame);
      expect(decode(std::span(again).subspan(frame_header_bytes)).has_value(),
             "a frame comes back");
    }
    check_outputs(coordinator);
    if (const auto deadline = coordinator.deadline()) {
      expect(*deadline >= Coordinator::Time{}, "deadlines do not overflow");
    }
  }
  return understood;
}

}  // namespace sprat::fuzz
