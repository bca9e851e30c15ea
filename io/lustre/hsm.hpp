// Files in the archive behind Lustre: the bytes of its HSM ioctls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sprat::io {

/// Lustre's name of a file.
struct LustreFid {
  std::uint64_t sequence = 0;
  std::uint32_t object = 0, version = 0;

  friend bool operator==(const LustreFid&, const LustreFid&) = default;
};

/// Where a file's data are, and what is done to it.
struct HsmState {
  std::uint32_t states = 0;  ///< hsm_* below.
  std::uint32_t archive = 0;
  std::uint32_t progress = 0;  ///< 0 none, 1 waiting, 2 running, 3 done.
  std::uint32_t action = 0;    ///< Of `progress`; 0 none.

  bool released() const noexcept { return (states & 0x4) != 0; }
  bool lost() const noexcept { return (states & 0x40) != 0; }
  bool under_way() const noexcept { return action != 0; }

  friend bool operator==(const HsmState&, const HsmState&) = default;
};
inline constexpr std::uint32_t hsm_exists = 0x1, hsm_dirty = 0x2, hsm_released = 0x4,
                               hsm_archived = 0x8, hsm_no_release = 0x10, hsm_no_archive = 0x20,
                               hsm_lost = 0x40;

/// Numbers of ioctls: _IOR('f', 211, 32 bytes), _IOW('f', 217, 24 bytes), _IOR('f', 173, long).
inline constexpr unsigned long hsm_state_ioctl = 0x802066d3, hsm_request_ioctl = 0x401866d9,
                               path_to_fid_ioctl = 0x800866ad;
inline constexpr std::size_t hsm_state_bytes = 32, fid_bytes = 16;
/// The client refuses more bytes than a third of an MDS request.
inline constexpr std::size_t most_files_of_a_restore = 52;

/// What hsm_state_ioctl filled in.
HsmState parse_hsm_state(std::span<const std::byte, hsm_state_bytes> reply);
/// As lfs hsm_state says it: "(0x0000000d) released exists archived, archive_id:1".
std::string hsm_text(const HsmState& state);

/// What path_to_fid_ioctl takes and fills in: room for a FID.
LustreFid parse_fid(std::span<const std::byte, fid_bytes> reply);

/// The request to bring whole files back, for hsm_request_ioctl on the mount's root. Of 1 to
/// most_files_of_a_restore files.
std::vector<std::byte> encode_restore(std::span<const LustreFid> files);

}  // namespace sprat::io
