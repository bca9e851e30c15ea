// A ring of frames between one writer and one reader that may only read each other's memory.
//
// The bytes and the tail lie in the writer's memory, the head in the reader's: nobody writes what
// is another's. Zeroed memory is two empty rings. A frame starts on a cache line, so that a message
// of up to 32 bytes costs the reader one line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sprat::comm {

enum class FrameKind : std::uint32_t {
  message = 1,  ///< A whole message.
  announce,     ///< A message of `total` bytes waits at the sender under `id`.
  grant,        ///< The reader of an announcement wants its pieces.
  refuse,       ///< The reader of an announcement has no room for it and never wants it.
  piece,        ///< The next bytes of message `id`.
  withdraw,     ///< Message `id` will not come, or not to its end.
  credit,       ///< Whole messages whose frames took `total` bytes have found their receives.
};

struct RingFrame {
  std::uint64_t tag = 0;
  std::uint64_t total = 0;  ///< Bytes of the whole message.
  std::uint64_t id = 0;
  std::uint32_t bytes = 0;  ///< Payload of this frame.
  FrameKind kind = FrameKind::message;
};

/// What one rank owns of its traffic with one peer: what it writes to it, what it has read from it.
struct FrameLane {
  static constexpr std::size_t ring_bytes = std::size_t{64} << 10;
  static constexpr std::size_t line_bytes = 64;
  /// A quarter of the ring, so that reader and writer work on different parts of it.
  static constexpr std::size_t max_payload = ring_bytes / 4 - sizeof(RingFrame);

  alignas(line_bytes) std::atomic<std::uint64_t> tail;  ///< Bytes ever written to the peer.
  alignas(line_bytes) std::atomic<std::uint64_t> head;  ///< Bytes ever read from the peer.
  alignas(line_bytes) std::byte data[ring_bytes];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(FrameLane) == FrameLane::ring_bytes + 2 * FrameLane::line_bytes);

/// Ring bytes that a frame with this payload takes.
constexpr std::size_t frame_bytes(std::size_t payload) {
  return (sizeof(RingFrame) + payload + FrameLane::line_bytes - 1) / FrameLane::line_bytes *
         FrameLane::line_bytes;
}

/// The writing end. One thread at a time.
class FrameWriter {
 public:
  FrameWriter(FrameLane& mine, const FrameLane& peers)
      : mine_(&mine), peers_(&peers), tail_(mine.tail.load(std::memory_order_relaxed)) {}

  /// True if a frame with this payload fits now.
  bool fits(std::size_t payload) {
    if (free_bytes() < frame_bytes(payload)) {
      // acquire: the reader is done with the bytes below its head, we may write over them.
      seen_head_ = peers_->head.load(std::memory_order_acquire);
    }
    return free_bytes() >= frame_bytes(payload);
  }
  /// Writes and publishes one frame that fits; its `bytes` are the payload's.
  void write(RingFrame frame, std::span<const std::byte> payload = {}) {
    frame.bytes = static_cast<std::uint32_t>(payload.size());
    const std::size_t at = tail_ % FrameLane::ring_bytes;
    std::memcpy(mine_->data + at, &frame, sizeof frame);
    if (!payload.empty()) {
      const std::size_t begin = (at + sizeof frame) % FrameLane::ring_bytes;
      const std::size_t first = std::min(payload.size(), FrameLane::ring_bytes - begin);
      std::memcpy(mine_->data + begin, payload.data(), first);
      std::memcpy(mine_->data, payload.data() + first, payload.size() - first);
    }
    tail_ += frame_bytes(frame.bytes);
    // release: the reader that sees this tail sees the bytes below it.
    mine_->tail.store(tail_, std::memory_order_release);
  }

 private:
  std::size_t free_bytes() const { return FrameLane::ring_bytes - (tail_ - seen_head_); }

  FrameLane* mine_;
  const FrameLane* peers_;
  std::uint64_t tail_;
  std::uint64_t seen_head_ = 0;
};

/// The reading end. One thread at a time.
class FrameReader {
 public:
  FrameReader(FrameLane& mine, const FrameLane& peers)
      : mine_(&mine), peers_(&peers), head_(mine.head.load(std::memory_order_relaxed)) {}

  /// True if a frame waits; `frame` is then a copy of its header.
  bool peek(RingFrame& frame) {
    if (seen_tail_ == head_) {
      // acquire: pairs with the writer's release of its tail.
      seen_tail_ = peers_->tail.load(std::memory_order_acquire);
      if (seen_tail_ == head_) {
        return false;
      }
    }
    std::memcpy(&frame, peers_->data + head_ % FrameLane::ring_bytes, sizeof frame);
    return true;
  }
  /// False if the writer's memory cannot be what a FrameWriter wrote.
  bool sound(const RingFrame& frame) const {
    return frame.bytes <= FrameLane::max_payload && frame_bytes(frame.bytes) <= waiting_bytes() &&
           waiting_bytes() <= FrameLane::ring_bytes && frame.bytes <= frame.total;
  }
  /// Copies the payload of the frame just peeked.
  void copy_payload(const RingFrame& frame, std::byte* to) const {
    const std::size_t begin = (head_ + sizeof frame) % FrameLane::ring_bytes;
    const std::size_t first = std::min<std::size_t>(frame.bytes, FrameLane::ring_bytes - begin);
    if (first > 0) {
      std::memcpy(to, peers_->data + begin, first);
    }
    if (frame.bytes > first) {
      std::memcpy(to + first, peers_->data, frame.bytes - first);
    }
  }
  /// Gives the frame just peeked back to the writer.
  void consume(const RingFrame& frame) {
    head_ += frame_bytes(frame.bytes);
    // release: our reads of the frame come before the writer's reuse of its bytes.
    mine_->head.store(head_, std::memory_order_release);
  }

 private:
  std::size_t waiting_bytes() const { return seen_tail_ - head_; }

  FrameLane* mine_;
  const FrameLane* peers_;
  std::uint64_t head_;
  std::uint64_t seen_tail_ = 0;
};

}  // namespace sprat::comm
