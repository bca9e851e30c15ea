// What a rank's file holds, sorted into streams that two files can be compared by.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/digests/digest_file.hpp"

namespace sprat::collectives::digests {

/// A communicator in any run, and on any of its ranks: the how manieth of this name and members.
struct GroupKey {
  std::string name;
  std::vector<std::int32_t> world_ranks;
  int occurrence = 0;
  auto operator<=>(const GroupKey&) const = default;
};

/// Calls that follow each other in every run: a communicator's collectives, or its messages of one
/// kind with one peer and tag.
struct StreamKey {
  GroupKey group;
  CallKind kind = CallKind::collective;
  std::int32_t partner = 0, tag = 0;  ///< Of messages.
  auto operator<=>(const StreamKey&) const = default;
};

/// The calls' numbers ascend. They point into the file.
struct Stream {
  std::int32_t rank = 0;  ///< This rank in the communicator.
  std::vector<const ReadCall*> calls;
};
using Streams = std::map<StreamKey, Stream>;

/// One entry a group, in the order of their making.
std::vector<GroupKey> group_keys(const DigestFile& file);
Streams streams_of(const DigestFile& file);

/// The files of one job, by rank; null: there is none. Borrowed.
struct JobFiles {
  std::string name;  ///< For people, and before ranks: "A".
  int size = 0;
  std::vector<const DigestFile*> ranks;
  /// When the first of its ranks began, since 1970: other times count from there.
  std::int64_t began_ns = 0;
};
/// Those that have no file.
std::vector<int> missing_ranks(const JobFiles& job);
JobFiles job_of(std::string name, int size, std::vector<const DigestFile*> ranks);

/// Where two buffers part, as near as their digests tell.
struct Range {
  std::uint64_t first = 0, last = 0;  ///< Elements, both included, of the first chunk that differs.
  std::size_t chunks = 0;             ///< How many differ,
  std::size_t of = 0;                 ///< of so many.
  bool operator==(const Range&) const = default;
};
/// Nothing if they are alike. Of equally many digests, 8 bytes each.
std::optional<Range> first_difference(std::span<const std::byte> a, std::span<const std::byte> b,
                                      std::uint64_t count, DType dtype);
/// The communicator's rank whose block holds an element of a buffer of equal blocks; -1: there are
/// none.
int block_of(const Call& call, bool of_input, std::uint64_t element);

/// The calls are the same but for what is in their buffers.
bool same_call(const Call& a, const Call& b);

}  // namespace sprat::collectives::digests
