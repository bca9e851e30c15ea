// What travels between a rank and the coordinator, and how it lies on a wire.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "comm/coordinator/rendezvous.hpp"

namespace sprat::comm {

/// Something that all ranks of a job must agree on: a version, a job-wide setting.
struct Term {
  std::string name, value;
  bool operator==(const Term&) const = default;
};

/// rank -> coordinator: may I join? The first frame of a connection that has proved the token.
struct Hello {
  int rank = -1, size = 0;  ///< Both `unnumbered`: a newcomer to a job that grows.
  std::vector<Term> terms;
};
inline constexpr int unnumbered = -1;
/// coordinator -> rank: you have joined, as this rank.
struct Welcome {
  int rank = unnumbered, size = 0;
};
/// coordinator -> rank: you cannot join. Code is an ErrorCode, rank the one at fault.
struct Refusal {
  int code = 0, rank = -1;
  std::string text;
};
/// The longest patience that an exchange keeps to: what SPRAT_JOIN_TIMEOUT may be, 31 years, and
/// what a deadline can be computed from without overflow.
inline constexpr std::chrono::milliseconds longest_exchange{1'000'000'000'000};
/// rank -> coordinator: my blob of the job's n-th exchange. The coordinator's clock starts when it
/// comes.
struct Part {
  std::uint64_t ordinal = 0;
  std::uint64_t patience_ms = 0;
  std::string purpose;
  Blob blob;
  /// Ranks of one number may share memory. Zero: with nobody. Said here and not in Hello, which
  /// other versions read too, so that they hear what differs.
  std::uint64_t host = 0;
};
/// coordinator -> rank: every rank's blob of that exchange. It goes to every rank and is the
/// longest frame there is, so it travels packed.
struct Parts {
  std::uint64_t ordinal = 0;
  std::vector<Blob> blobs;
};

/// Where Parts lie in the memory of a rank that shares them with its host (handout.hpp).
/// coordinator -> a host's leader, with descriptor -1: share those that come next.
/// leader -> coordinator -> the others of its host: they are here; -1: nowhere.
struct PartsPlace {
  std::uint64_t ordinal = 0;
  std::int32_t pid = 0, descriptor = -1;
  std::uint64_t inode = 0, bytes = 0;
  std::uint64_t digest = 0;  ///< XXH3 of those bytes: what is read there is what was put there.
  bool operator==(const PartsPlace&) const = default;
};
/// rank -> coordinator: has read them there, or cannot. coordinator -> leader: nobody needs them
/// there any more.
struct PartsTaken {
  std::uint64_t ordinal = 0;
  std::uint8_t read = 1;  ///< 0: it cannot.
};

/// Either way, every two seconds: I am here. The connection's own; nobody else sees it.
struct Beat {};

using Frame = std::variant<Hello, Welcome, Refusal, Part, Parts, ControlMessage, Beat, PartsPlace,
                           PartsTaken>;
/// Something to be said to some ranks.
struct FrameTo {
  std::vector<int> to;
  Frame frame;
};

/// All blobs of one exchange together, in bytes: 4 KiB for each of 16,384 ranks, as many addresses
/// as a host with 32 rails has.
inline constexpr std::size_t max_exchange_bytes = std::size_t{64} << 20;
/// An encoded frame, in bytes; what follows the length in front of it.
inline constexpr std::size_t max_frame_bytes = max_exchange_bytes + (std::size_t{1} << 20);
/// The same, from a connection that has not joined yet.
inline constexpr std::size_t max_hello_bytes = std::size_t{64} << 10;
/// The length in front of a frame: u32, little endian.
inline constexpr std::size_t frame_header_bytes = 4;

/// The length and the frame. Texts too long for a frame are cut.
Blob encode(const Frame& frame);
/// Null if the bytes (without the length) are not a frame.
std::optional<Frame> decode(std::span<const std::byte> bytes);
/// Parts as they lie in memory that several ranks read: not packed, since unpacking is most of what
/// it costs a rank to read them.
Blob encode_unpacked(const Parts& parts);
/// Null if the bytes do not begin with parts. What lies behind them is nobody's.
std::optional<Parts> decode_unpacked(std::span<const std::byte> bytes);
/// The length that a frame header holds.
std::size_t frame_bytes(std::span<const std::byte, frame_header_bytes> header);

}  // namespace sprat::comm
