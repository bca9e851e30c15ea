// The memory that ranks of a host show each other: control segments, and whatever callers describe.
//
// Each rank has one control segment, which its local peers map as they join. Everything else is
// reached when it is first named: shared memory by a mapping, private memory by the kernel.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/context/context_header.hpp"
#include "comm/memory/segment.hpp"

namespace sprat::comm {

/// One rank's. Joining fills it in; afterwards each function says who may call it.
class MemoryMap {
 public:
  /// What a rank tells of its control segment, so that peers find it and know it when they see it.
  struct Offer {
    pid_t pid = 0;
    MemoryRef segment;
    std::uint64_t address = 0;  ///< In its own process.
    std::uint64_t nonce = 0;    ///< ControlHeader::nonce.
    bool operator==(const Offer&) const = default;
  };
  /// Who can read private memory through the kernel.
  struct Readability {
    bool mine = false;        ///< Every local peer can read this rank's.
    bool everybodys = false;  ///< On every host each rank can read that of all others.
  };

  /// Makes this rank's control segment. Throws Error{unavailable}.
  MemoryMap(int rank, int size);

  // --- joining ----------------------------------------------------------------------------------
  Offer offer() const;
  /// What a rank offers that may share memory with this one.
  void meet(int rank, const Offer& offer);
  /// All ranks are threads of this process, all were met, and their memory lives as long as this:
  /// it is reached by pointers. Instead of map().
  void share_process();
  /// Maps the control segment of a peer that it met. Returns why that cannot be had, or nothing.
  std::optional<std::string> map(int rank);
  /// A peer's private memory can be read from here: tried with its nonce.
  bool try_reading(int rank) const noexcept;
  void settle(Readability readability) { readability_ = readability; }

  // --- control segments -------------------------------------------------------------------------
  /// This rank's.
  ControlHeader& header() const { return header_of(control_->data()); }
  /// A local peer's; null if it has no memory in common with this rank. Any thread.
  ControlHeader* header(int rank) const {
    return controls_[rank] == nullptr ? nullptr : &header_of(controls_[rank]);
  }
  bool reaches(int rank) const { return controls_[rank] != nullptr; }
  /// Bytes of the control segment, 128-byte aligned: zero, or as release() got them. Throws
  /// Error{unavailable} when it is full. Token held.
  std::size_t allocate(std::size_t bytes);
  void release(std::size_t offset, std::size_t bytes);
  /// The same of what peers may still read: it is given out again only once `is_unused` says so,
  /// which is asked when memory is allocated.
  void release_when(std::size_t offset, std::size_t bytes, std::function<bool()> is_unused);
  std::byte* control(std::size_t offset) const { return control_->data() + offset; }
  std::byte* control_of(int rank, std::size_t offset) const { return controls_[rank] + offset; }

  // --- buffers ----------------------------------------------------------------------------------
  /// Peers are threads of this process.
  bool in_process() const { return in_process_; }
  bool everybody_readable() const { return readability_.everybodys; }
  /// How peers may reach [data, data + bytes). Any thread.
  MemoryRef describe(const void* data, std::size_t bytes) const noexcept;
  /// A local peer's memory, read-only. Of a process's private memory, an address to read() only.
  /// Token held.
  PeerMemory view(int rank, const MemoryRef& ref);
  /// Copies private memory of a local peer's; false if it cannot be had. Any thread.
  bool read(int rank, const std::byte* from, std::byte* to, std::size_t bytes) const noexcept;

 private:
  static ControlHeader& header_of(std::byte* control) {
    return *reinterpret_cast<ControlHeader*>(control);
  }
  /// A piece that was released.
  struct Free {
    std::size_t bytes, offset;
    bool operator==(const Free&) const = default;
  };

  /// A rank that may share memory with this one. There are few, however large the job is.
  struct Neighbour {
    explicit Neighbour(const Offer& its) : offer(its), mappings(its.pid) {}
    Offer offer;
    std::unique_ptr<PeerMapping> control;
    PeerMappings mappings;  ///< Token.
  };
  struct AwaitedPiece {
    Free piece;
    std::function<bool()> is_unused;
  };
  void collect_unused();

  std::unique_ptr<Segment> control_;
  std::size_t used_;                   ///< Bytes of it, released ones included. Token.
  std::vector<Free> free_;             ///< Token.
  std::vector<AwaitedPiece> awaited_;  ///< Token.
  std::vector<std::byte*> controls_;   ///< By rank; and so is the next.
  std::vector<std::unique_ptr<Neighbour>> neighbours_;
  bool in_process_ = false;
  Readability readability_;
};

}  // namespace sprat::comm
