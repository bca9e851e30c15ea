// Records with checksums, one after the other.
#include "collectives/digests/digest_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "collectives/digests/chunks.hpp"
#include "comm/base/check.hpp"
#include "sprat/buffer.hpp"

namespace sprat::collectives::digests {
namespace {

constexpr std::array<char, 8> magic = {'S', 'P', 'R', 'A', 'T', 'D', 'I', 'G'};
constexpr std::size_t digest_bytes = sizeof(std::uint64_t);
constexpr int most_ranks = 1 << 24;

enum class Kind : std::uint32_t { group = 1, call, gap, end };

/// As it lies in the file.
struct FileHead {
  std::array<char, 8> magic{};
  std::uint32_t byte_order = 0, version = 0;
  std::uint64_t chunk_bytes = 0;
  std::int32_t rank = 0, size = 0;
  std::int64_t started_unix_ns = 0;
  std::uint64_t inputs = 0;
  std::array<char, 80> job{};
  std::array<char, 64> host{};
  std::uint64_t checksum = 0;
};
static_assert(sizeof(FileHead) == 200);

struct GroupHead {
  std::uint32_t index = 0, name_bytes = 0;
  std::int32_t rank = 0, size = 0;
  std::int64_t step = 0, made_ns = 0;
};
static_assert(sizeof(GroupHead) == 32);

std::uint64_t checksum_of(const FileHead& head) {
  return XXH3_64bits(&head, sizeof head - sizeof head.checksum);
}

// The length and the kind are in it, so that neither can be mistaken. Of a call only its digests'
// digest: the long part is hashed once.
std::uint64_t checksum_of(const RecordHead& head, std::span<const std::byte> first,
                          std::span<const std::byte> rest) {
  const std::uint64_t seed = std::uint64_t{head.bytes} << 32 | head.kind;
  const std::uint64_t sum = XXH3_64bits_withSeed(first.data(), first.size(), seed);
  return XXH3_64bits_withSeed(rest.data(), rest.size(), sum);
}

std::size_t rounded_up(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// A record of `content`, filled up to a multiple of 8 bytes.
std::vector<std::byte> record(Kind kind, std::vector<std::byte> content) {
  content.resize(rounded_up(content.size()));
  RecordHead head{.bytes = static_cast<std::uint32_t>(content.size()),
                  .kind = static_cast<std::uint32_t>(kind),
                  .checksum = 0};
  head.checksum = checksum_of(head, content, {});
  const auto bytes = std::as_bytes(std::span(&head, 1));
  content.insert(content.begin(), bytes.begin(), bytes.end());
  return content;
}

std::vector<std::byte> number_record(Kind kind, std::uint64_t number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  return record(kind, {bytes.begin(), bytes.end()});
}

template <std::size_t size>
std::array<char, size> fixed(std::string_view text) {
  std::array<char, size> out{};
  std::copy_n(text.begin(), std::min(text.size(), size - 1), out.begin());
  return out;
}

/// What a terminal or a JSON reader cannot bear becomes a question mark: the file may be anybody's.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, text.find('\0')));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

template <class Value>
Value taken(std::span<const std::byte>& bytes) {
  Value value;
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

// --- reading ---

bool is_type(DType dtype) {
  return static_cast<unsigned>(dtype) <= static_cast<unsigned>(DType::boolean);
}

bool makes_sense(const Signature& signature) {
  return static_cast<unsigned>(signature.collective) <=
             static_cast<unsigned>(Collective::all_to_allv) &&
         is_type(signature.input) && is_type(signature.output) &&
         static_cast<unsigned>(signature.op) <= static_cast<unsigned>(ReduceOp::user);
}

/// How many digests a buffer of so many elements has; nothing if no memory holds as many.
std::optional<std::size_t> digests_of(std::uint64_t count, DType dtype, std::uint8_t kept) {
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  if (kept > 1 || count > most / size_of(dtype)) {
    return std::nullopt;
  }
  return kept == 0 ? 0 : chunks_of(static_cast<std::size_t>(count) * size_of(dtype));
}

std::optional<ReadCall> read_call(std::span<const std::byte> bytes, const DigestFile& file) {
  if (bytes.size() < sizeof(Call)) {
    return std::nullopt;
  }
  ReadCall read{.call = taken<Call>(bytes), .input = {}, .result = {}};
  const Call& call = read.call;
  if (call.group >= file.groups.size() || call.kind > CallKind::receive ||
      !makes_sense(call.signature) || call.step < -1 || call.uneven > 1) {
    return std::nullopt;
  }
  const auto size = static_cast<std::int32_t>(file.groups[call.group].world_ranks.size());
  // The counts say how many digests there must be, and the record's length how many there are: no
  // count is used for anything unless both agree.
  const auto input = digests_of(call.input_count, input_type(call), call.input_kept);
  const auto result = digests_of(call.result_count, result_type(call), call.result_kept);
  if (call.partner < 0 || call.partner >= size || !input || !result ||
      bytes.size() != (*input + *result) * digest_bytes) {
    return std::nullopt;
  }
  read.input = bytes.first(*input * digest_bytes);
  read.result = bytes.subspan(*input * digest_bytes);
  return read;
}

std::optional<Group> read_group(std::span<const std::byte> bytes, const DigestFile& file) {
  if (bytes.size() < sizeof(GroupHead)) {
    return std::nullopt;
  }
  const auto head = taken<GroupHead>(bytes);
  if (head.index != file.groups.size() || head.size < 1 || head.size > file.about.size ||
      head.rank < 0 || head.rank >= head.size || head.step < -1) {
    return std::nullopt;
  }
  const std::size_t ranks = static_cast<std::size_t>(head.size) * sizeof(std::int32_t);
  if (bytes.size() != rounded_up(ranks + head.name_bytes)) {
    return std::nullopt;
  }
  Group group{.index = head.index,
              .rank = head.rank,
              .step = head.step,
              .made_ns = head.made_ns,
              .name = printable({reinterpret_cast<const char*>(bytes.data() + ranks),
                                 std::size_t{head.name_bytes}}),
              .world_ranks = std::vector<std::int32_t>(static_cast<std::size_t>(head.size))};
  std::memcpy(group.world_ranks.data(), bytes.data(), ranks);
  const auto is_rank = [&](std::int32_t rank) { return rank >= 0 && rank < file.about.size; };
  if (!std::ranges::all_of(group.world_ranks, is_rank)) {
    return std::nullopt;
  }
  return group;
}

/// Takes one record's content into the file. False if it makes no sense.
bool take(Kind kind, std::span<const std::byte> content, DigestFile& file) {
  switch (kind) {
    case Kind::group: {
      auto group = read_group(content, file);
      if (group) {
        file.groups.push_back(std::move(*group));
      }
      return group.has_value();
    }
    case Kind::call: {
      const auto call = read_call(content, file);
      if (call) {
        file.calls.push_back(*call);
      }
      return call.has_value();
    }
    case Kind::gap:
    case Kind::end: {
      if (content.size() != sizeof(std::uint64_t)) {
        return false;
      }
      const auto number = taken<std::uint64_t>(content);
      if (kind == Kind::end) {
        file.failed = number != 0;
        file.ended = !file.failed;
      } else {
        file.lost += std::min(std::numeric_limits<std::uint64_t>::max() - file.lost, number);
      }
      return true;
    }
  }
  return false;  // a kind that no Sprat of this version writes
}

About read_about(std::string_view name, std::span<const std::byte> bytes) {
  require(bytes.size() >= sizeof(FileHead), name, " has ", bytes.size(),
          " bytes; a file of digests has more, or its rank was killed as it joined");
  const auto head = taken<FileHead>(bytes);
  require(head.magic == magic, name, " is no file of digests");
  require(head.byte_order == byte_order, name, " was written on a machine of another byte order");
  require(head.version == file_version, name, " is of version ", head.version,
          " of files of digests, and this is sprat of version ", file_version,
          "; use the sprat command of the run");
  require(head.checksum == checksum_of(head) && head.chunk_bytes == chunk_bytes && head.size >= 1 &&
              head.size <= most_ranks && head.rank >= 0 && head.rank < head.size &&
              head.inputs <= 1,
          name, " is damaged in its first ", sizeof(FileHead), " bytes");
  return {.rank = head.rank,
          .size = head.size,
          .started_unix_ns = head.started_unix_ns,
          .inputs = head.inputs == 1,
          .job = printable({head.job.data(), head.job.size()}),
          .host = printable({head.host.data(), head.host.size()})};
}

}  // namespace

std::vector<std::byte> encode(const About& about) {
  FileHead head{.magic = magic,
                .byte_order = byte_order,
                .version = file_version,
                .chunk_bytes = chunk_bytes,
                .rank = about.rank,
                .size = about.size,
                .started_unix_ns = about.started_unix_ns,
                .inputs = about.inputs ? 1u : 0u,
                .job = fixed<80>(about.job),
                .host = fixed<64>(about.host),
                .checksum = 0};
  head.checksum = checksum_of(head);
  const auto bytes = std::as_bytes(std::span(&head, 1));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> encode(const Group& group) {
  const GroupHead head{.index = group.index,
                       .name_bytes = static_cast<std::uint32_t>(group.name.size()),
                       .rank = group.rank,
                       .size = static_cast<std::int32_t>(group.world_ranks.size()),
                       .step = group.step,
                       .made_ns = group.made_ns};
  std::vector<std::byte> content;
  for (const auto part :
       {std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(group.world_ranks)),
        std::as_bytes(std::span(group.name))}) {
    content.insert(content.end(), part.begin(), part.end());
  }
  return record(Kind::group, std::move(content));
}

std::vector<std::byte> encode_end(bool failed) { return number_record(Kind::end, failed ? 1 : 0); }

std::vector<std::byte> encode_gap(std::uint64_t calls) { return number_record(Kind::gap, calls); }

CallRecord record_of(const Call& call, std::span<const std::uint64_t> digests) {
  CallRecord record{
      .head = {.bytes = static_cast<std::uint32_t>(sizeof call + digests.size_bytes()),
               .kind = static_cast<std::uint32_t>(Kind::call),
               .checksum = 0},
      .call = call};
  record.head.checksum =
      checksum_of(record.head, std::as_bytes(std::span(&record.call, 1)), std::as_bytes(digests));
  return record;
}

// A record whose checksum holds and whose content makes no sense ends the reading like a torn one:
// what follows could only be guessed at.
DigestFile parse(std::string_view name, std::span<const std::byte> bytes) {
  DigestFile file;
  file.about = read_about(name, bytes);
  std::size_t at = sizeof(FileHead);
  while (at < bytes.size()) {
    std::span<const std::byte> left = bytes.subspan(at);
    if (left.size() < sizeof(RecordHead)) {
      break;
    }
    const auto head = taken<RecordHead>(left);
    if (head.bytes > left.size() || head.bytes % 8 != 0) {
      break;
    }
    const std::span<const std::byte> content = left.first(head.bytes);
    const bool is_call = head.kind == static_cast<std::uint32_t>(Kind::call);
    const std::size_t first = is_call ? std::min(content.size(), sizeof(Call)) : content.size();
    if (checksum_of(head, content.first(first), content.subspan(first)) != head.checksum ||
        !take(static_cast<Kind>(head.kind), content, file)) {
      break;
    }
    at += sizeof head + head.bytes;
  }
  if (at < bytes.size()) {
    file.torn_at = at;
  }
  return file;
}

DType input_type(const Call& call) {
  return call.kind == CallKind::collective ? call.signature.input : DType::u8;
}

DType result_type(const Call& call) {
  return call.kind == CallKind::collective ? call.signature.output : DType::u8;
}

std::string words(const Call& call) {
  switch (call.kind) {
    case CallKind::send:
      return text("send of ", call.input_count, " bytes to rank ", call.partner, " with tag ",
                  call.tag);
    case CallKind::receive:
      return text("recv of ", call.result_count, " bytes from rank ", call.partner, " with tag ",
                  call.tag);
    case CallKind::collective:
      break;
  }
  // The signature has no factor of a premultiplied sum: its words would make one up.
  if (call.uneven == 0 && call.signature.op != ReduceOp::premultiplied_sum) {
    Signature signature = call.signature;
    signature.detail = static_cast<std::uint32_t>(call.partner);
    return describe(signature);
  }
  return text(name(call.signature.collective), call.uneven != 0 ? " of uneven blocks, " : " of ",
              call.input_count, " ", name(call.signature.input), " in and ", call.result_count,
              " out");
}

}  // namespace sprat::collectives::digests
