// The file of digests that a rank leaves: how its records are laid out, and how they are read
// again.
//
// A head, then records one after the other, each with a checksum over all of it. A process that is
// killed leaves a file that ends anywhere: what was whole is read, and where it tears is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/signature.hpp"

namespace sprat::collectives::digests {

inline constexpr std::uint32_t file_version = 1;
/// Read on a machine of the other byte order it is another number.
inline constexpr std::uint32_t byte_order = 0x01020304;

enum class CallKind : std::uint8_t { collective, send, receive };

/// What the file is of.
struct About {
  std::int32_t rank = 0, size = 0;
  std::int64_t started_unix_ns = 0;  ///< Of the file; times of calls count from there.
  bool inputs = false;               ///< Inputs are digested, too.
  std::string job;                   ///< The same on every rank of a job, and on no other's.
  std::string host;
  bool operator==(const About&) const = default;
};

/// A communicator, when it is made.
struct Group {
  std::uint32_t index = 0;  ///< In this file.
  std::int32_t rank = 0;
  std::int64_t step = -1;
  std::int64_t made_ns = 0;
  std::string name;
  std::vector<std::int32_t> world_ranks;
  bool operator==(const Group&) const = default;
};

/// One call, without its digests.
struct Call {
  std::uint64_t number = 0;    ///< Of the communicator's collectives, or of the messages of one
                               ///< kind with a peer and tag; those that are not digested left out.
  std::uint64_t sequence = 0;  ///< What errors and flight records call it; of messages the number.
  std::uint64_t order = 0;     ///< Among all calls of the rank.
  std::int64_t step = -1;      ///< What the program said last before it; -1: nothing.
  std::int64_t ended_ns = 0;
  std::uint64_t input_count = 0, result_count = 0;  ///< Elements.
  Signature signature;                              ///< Of messages: u8, and otherwise as it comes.
  std::uint32_t group = 0;                          ///< Index.
  std::int32_t partner = 0;                         ///< A collective's root, a message's peer.
  std::int32_t tag = 0;
  CallKind kind = CallKind::collective;
  std::uint8_t input_kept = 0, result_kept = 0;  ///< 1: digests of it follow.
  std::uint8_t uneven = 0;  ///< 1: blocks differ in length, and the signature has a hash of them.
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 88);

/// In this process's byte order, which the head tells. Each is to be appended as a whole.
std::vector<std::byte> encode(const About& about);
std::vector<std::byte> encode(const Group& group);
/// The last record: the rank made no more calls, for it left, or because its job failed.
std::vector<std::byte> encode_end(bool failed);
/// So many calls were not kept, for the disk was late.
std::vector<std::byte> encode_gap(std::uint64_t calls);

/// A record's head, and what belongs into its checksum.
struct RecordHead {
  std::uint32_t bytes = 0;  ///< Behind the head; a multiple of 8.
  std::uint32_t kind = 0;
  std::uint64_t checksum = 0;
};
/// A call's record without allocation: this, and then the digests.
struct CallRecord {
  RecordHead head;
  Call call;
};
CallRecord record_of(const Call& call, std::span<const std::uint64_t> digests);

/// A call as it is read: digests lie in the file, 8 bytes each, in no alignment.
struct ReadCall {
  Call call;
  std::span<const std::byte> input, result;
};

struct DigestFile {
  About about;
  std::vector<Group> groups;  ///< By index.
  std::vector<ReadCall> calls;
  std::uint64_t lost = 0;  ///< Calls that were not kept.
  bool ended = false;      ///< The rank left in good order: this is all.
  bool failed = false;     ///< Its job failed, or a communicator of it: this is all up to there.
  std::optional<std::size_t> torn_at;  ///< Byte from which nothing can be read.
};

/// Believes no byte. `bytes` outlives the result. Throws Error{invalid_argument}, with `name`, if
/// it is no such file, of another version or of another byte order.
DigestFile parse(std::string_view name, std::span<const std::byte> bytes);

DType input_type(const Call& call);
DType result_type(const Call& call);
/// "all_reduce of 1024 f32, sum"; "recv of 96 bytes from rank 1 with tag 7".
std::string words(const Call& call);

}  // namespace sprat::collectives::digests
