// manifest.json: what a checkpoint is, and the checksums of its files. It is written last.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "checkpoint/plan/contents.hpp"

namespace sprat::fsdp {

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr std::uint64_t longest_manifest = std::uint64_t{1} << 30;

struct Manifest {
  std::int64_t step = 0;
  std::int64_t samples = 0;                   ///< Where the data goes on.
  std::map<std::string, double> counters;     ///< Optimizer and loss scaler.
  std::map<std::string, std::string> notes;   ///< Of the training program.
  std::map<std::string, std::string> config;  ///< What the model ran with.
  Contents contents;
};

/// Lines of JSON; the last member is the checksum of all text before it.
std::string write_manifest(const Manifest& manifest);
/// Throws Error{unavailable} naming `path` if a byte differs from what was written, or if what it
/// says makes no sense.
Manifest parse_manifest(const std::string& path, std::string_view text);
/// Of the checkpoint in `folder`.
Manifest read_manifest(const std::string& folder);

}  // namespace sprat::fsdp
