#include "io/lustre/hsm.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

// The kernel's structures, in the host's order of bytes.
struct [[gnu::packed]] HsmReply {
  std::uint32_t states, archive, progress, action;
  std::uint64_t offset, length;
};
static_assert(sizeof(HsmReply) == hsm_state_bytes);

struct [[gnu::packed]] RestoreHead {
  std::uint32_t action, archive;
  std::uint64_t flags;
  std::uint32_t items, data_bytes;
};
static_assert(sizeof(RestoreHead) == 24);

struct [[gnu::packed]] RestoreItem {
  std::uint64_t sequence;
  std::uint32_t object, version;
  std::uint64_t offset, length;
};
static_assert(sizeof(RestoreItem) == 32);

struct [[gnu::packed]] FidReply {
  std::uint64_t sequence;
  std::uint32_t object, version;
};
static_assert(sizeof(FidReply) == fid_bytes);

static_assert(hsm_state_ioctl == _IOR('f', 211, HsmReply));
static_assert(hsm_request_ioctl == _IOW('f', 217, RestoreHead));
static_assert(path_to_fid_ioctl == _IOR('f', 173, long));

constexpr std::uint32_t restore_action = 11;
constexpr std::size_t most_request_bytes = 5120 / 3;  // a third of MDS_MAXREQSIZE
static_assert(sizeof(RestoreHead) + most_files_of_a_restore * sizeof(RestoreItem) <=
              most_request_bytes);
static_assert(sizeof(RestoreHead) + (most_files_of_a_restore + 1) * sizeof(RestoreItem) >
              most_request_bytes);

}  // namespace

HsmState parse_hsm_state(std::span<const std::byte, hsm_state_bytes> reply) {
  HsmReply raw{};
  std::memcpy(&raw, reply.data(), sizeof raw);
  return {
      .states = raw.states, .archive = raw.archive, .progress = raw.progress, .action = raw.action};
}

std::string hsm_text(const HsmState& state) {
  // The order is that of lfs, so that both can be compared as text.
  constexpr std::pair<std::uint32_t, const char*> words[] = {{hsm_released, "released"},
                                                             {hsm_exists, "exists"},
                                                             {hsm_dirty, "dirty"},
                                                             {hsm_archived, "archived"},
                                                             {hsm_no_release, "never_release"},
                                                             {hsm_no_archive, "never_archive"},
                                                             {hsm_lost, "lost_from_hsm"}};
  std::string line = fmt::format("({:#010x})", state.states);
  for (const auto& [flag, word] : words) {
    line += (state.states & flag) != 0 ? fmt::format(" {}", word) : "";
  }
  return state.archive == 0 ? line : fmt::format("{}, archive_id:{}", line, state.archive);
}

LustreFid parse_fid(std::span<const std::byte, fid_bytes> reply) {
  FidReply raw{};
  std::memcpy(&raw, reply.data(), sizeof raw);
  return {.sequence = raw.sequence, .object = raw.object, .version = raw.version};
}

std::vector<std::byte> encode_restore(std::span<const LustreFid> files) {
  require(!files.empty() && files.size() <= most_files_of_a_restore, "a restore of ", files.size(),
          " files; one request takes 1 to ", most_files_of_a_restore);
  std::vector<std::byte> bytes(sizeof(RestoreHead) + files.size() * sizeof(RestoreItem));
  const RestoreHead head{.action = restore_action,
                         .archive = 0,
                         .flags = 0,
                         .items = static_cast<std::uint32_t>(files.size()),
                         .data_bytes = 0};
  std::memcpy(bytes.data(), &head, sizeof head);
  std::byte* into = bytes.data() + sizeof head;
  for (const LustreFid& fid : files) {
    const RestoreItem item{.sequence = fid.sequence,
                           .object = fid.object,
                           .version = fid.version,
                           .offset = 0,
                           .length = std::numeric_limits<std::uint64_t>::max()};
    std::memcpy(into, &item, sizeof item);
    into += sizeof item;
  }
  return bytes;
}

}  // namespace sprat::io
