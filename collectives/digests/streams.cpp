// Sorting calls, and finding the chunk at which two of them part.
#include "collectives/digests/streams.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "collectives/digests/chunks.hpp"
#include "sprat/buffer.hpp"

namespace sprat::collectives::digests {

std::vector<GroupKey> group_keys(const DigestFile& file) {
  std::map<std::pair<std::string, std::vector<std::int32_t>>, int> seen;
  std::vector<GroupKey> keys;
  for (const Group& group : file.groups) {
    keys.push_back({.name = group.name,
                    .world_ranks = group.world_ranks,
                    .occurrence = seen[{group.name, group.world_ranks}]++});
  }
  return keys;
}

Streams streams_of(const DigestFile& file) {
  const std::vector<GroupKey> keys = group_keys(file);
  Streams streams;
  for (const ReadCall& read : file.calls) {
    const Call& call = read.call;
    StreamKey key{.group = keys[call.group], .kind = call.kind};
    if (call.kind != CallKind::collective) {
      key.partner = call.partner;
      key.tag = call.tag;
    }
    Stream& stream = streams[key];
    stream.rank = file.groups[call.group].rank;
    stream.calls.push_back(&read);
  }
  // Collectives of a communicator end in the order of their calls, and so are written down in it.
  // Messages are written down as they end, which may be in another order.
  for (auto& [key, stream] : streams) {
    std::ranges::stable_sort(stream.calls, {},
                             [](const ReadCall* one) { return one->call.number; });
  }
  return streams;
}

JobFiles job_of(std::string name, int size, std::vector<const DigestFile*> ranks) {
  JobFiles job{.name = std::move(name),
               .size = size,
               .ranks = std::move(ranks),
               .began_ns = std::numeric_limits<std::int64_t>::max()};
  for (const DigestFile* file : job.ranks) {
    if (file != nullptr) {
      job.began_ns = std::min(job.began_ns, file->about.started_unix_ns);
    }
  }
  return job;
}

std::vector<int> missing_ranks(const JobFiles& job) {
  std::vector<int> missing;
  for (int rank = 0; rank < job.size; ++rank) {
    if (job.ranks[static_cast<std::size_t>(rank)] == nullptr) {
      missing.push_back(rank);
    }
  }
  return missing;
}

std::optional<Range> first_difference(std::span<const std::byte> a, std::span<const std::byte> b,
                                      std::uint64_t count, DType dtype) {
  // Sizes differ only where one of both has no digests; equal counts have equally many.
  if (a.size() != b.size() || std::ranges::equal(a, b)) {
    return std::nullopt;
  }
  constexpr std::size_t digest_bytes = sizeof(std::uint64_t);
  Range range{.first = 0, .last = 0, .chunks = 0, .of = a.size() / digest_bytes};
  for (std::size_t chunk = 0; chunk < range.of; ++chunk) {
    const std::size_t at = chunk * digest_bytes;
    if (std::memcmp(a.data() + at, b.data() + at, digest_bytes) == 0) {
      continue;
    }
    if (range.chunks++ == 0) {
      const std::uint64_t elements = chunk_bytes / size_of(dtype);
      range.first = chunk * elements;
      range.last = std::min(range.first + elements, count) - 1;
    }
  }
  return range;
}

int block_of(const Call& call, bool of_input, std::uint64_t element) {
  if (call.kind != CallKind::collective || call.uneven != 0 || call.signature.count == 0) {
    return -1;
  }
  const int block = static_cast<int>(
      std::min<std::uint64_t>(element / call.signature.count, std::numeric_limits<int>::max()));
  switch (call.signature.collective) {
    case Collective::all_to_all:
      return block;
    case Collective::all_gather:
    case Collective::gather:
      return of_input ? -1 : block;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return of_input ? block : -1;
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::barrier:
    case Collective::reduce:
    case Collective::gatherv:
    case Collective::scatterv:
    case Collective::all_to_allv:
      return -1;
  }
  return -1;
}

bool same_call(const Call& a, const Call& b) {
  return a.kind == b.kind && a.signature == b.signature && a.partner == b.partner &&
         a.tag == b.tag && a.uneven == b.uneven && a.input_count == b.input_count &&
         a.result_count == b.result_count;
}

}  // namespace sprat::collectives::digests
