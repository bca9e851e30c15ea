// The extended attribute lustre.lov: on which OSTs a file's bytes lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/reading/request.hpp"

namespace sprat::io {

/// Data on the metadata server ("data on MDT").
inline constexpr Target metadata_target = -1;
/// Nobody knows where: no layout, none that can be read, or nothing there yet. Below -2 there is
/// nothing, so that a caller may give each such file a target of its own.
inline constexpr Target unknown_target = -2;

/// A part of a file with one way of striping; plain layouts are one of the whole file.
struct LustreComponent {
  std::uint64_t begin = 0, end = 0;  ///< In the file; UINT64_MAX is its end.
  std::uint32_t id = 0;              ///< 0 in plain layouts.
  std::uint32_t mirror = 0;
  std::uint32_t flags = 0;    ///< component_* below.
  std::uint32_t pattern = 0;  ///< pattern_* below.
  std::uint64_t stripe_bytes = 0;
  std::uint32_t stripe_count = 0;  ///< As it was set; how many objects there are, osts says.
  std::string pool = {};
  std::vector<Target> osts = {};  ///< Of stripe 0, 1, ...; an OST may come twice (overstriping).
};

struct LustreLayout {
  bool composite = false;
  std::uint32_t mirrors = 1;
  bool released = false;  ///< The data are in the archive alone.
  bool foreign = false;   ///< Another file system's: nothing is known of it.
  std::vector<LustreComponent> components = {};
};

// What a component's data are, and how it stands. The numbers are Lustre's.
inline constexpr std::uint32_t pattern_raid0 = 0x1, pattern_raid1 = 0x2, pattern_parity = 0x4,
                               pattern_mdt = 0x100, pattern_overstriping = 0x200,
                               pattern_foreign = 0x400, pattern_compressed = 0x800,
                               pattern_hole = 0x40000000, pattern_released = 0x80000000;
inline constexpr std::uint32_t component_stale = 0x1, component_prefer_read = 0x2,
                               component_offline = 0x8, component_ready = 0x10,
                               component_extension = 0x40, component_parity = 0x80;

/// Takes any bytes. Throws Error{unavailable} saying what is wrong with them, at which byte.
LustreLayout parse_lustre_layout(std::span<const std::byte> attribute);

/// Where the first `file_bytes` bytes are read from: of several mirrors the one that Lustre would
/// read. Bytes without an object, and all of a released or foreign file, are on `unknown`.
FileLayout file_layout(const LustreLayout& layout, std::uint64_t file_bytes,
                       Target unknown = unknown_target);

/// The layout of a file of which nothing is known.
FileLayout unknown_layout(std::uint64_t file_bytes, Target unknown = unknown_target);

}  // namespace sprat::io
