// Manifests of checkpoints whose checksum is right: each is refused with an Error, or comes back.
#include <fmt/core.h>
#include <xxhash.h>

#include <string>
#include <string_view>

#include "checkpoint/manifest.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {

/// The input is a manifest up to its checksum.
bool run_manifest(std::span<const std::byte> input) {
  std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const std::uint64_t checksum = XXH3_64bits(text.data(), text.size());
  text += fmt::format(",\n\"checksum\":\"{:016x}\"\n}}\n", checksum);
  try {
    const fsdp::Manifest manifest = fsdp::parse_manifest("manifest.json", text);
    const std::string again = fsdp::write_manifest(manifest);
    const fsdp::Manifest parsed = fsdp::parse_manifest("manifest.json", again);
    expect(parsed.contents.tensors == manifest.contents.tensors &&
               parsed.contents.files == manifest.contents.files && parsed.step == manifest.step,
           "a manifest comes back");
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
