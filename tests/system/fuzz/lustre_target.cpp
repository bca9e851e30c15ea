// What Lustre's client, the kernel and users say of a file system: layouts, mounts, FSx's sizes.
#include <algorithm>
#include <string_view>

#include "io/capacity/fsx.hpp"
#include "io/lustre/detection.hpp"
#include "io/lustre/layout.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"
#include "tests/unit/io/lustre/target_at.hpp"

namespace sprat::fuzz {
namespace {

/// Ranges follow each other from 0 to the end, each with targets, and each byte has one of them.
void check_map(const io::LustreLayout& layout, std::uint64_t file_bytes) {
  const io::FileLayout file = io::file_layout(layout, file_bytes);
  std::uint64_t at = 0;
  for (const io::StripedRange& range : file) {
    expect(range.begin == at && range.end > at, "ranges follow each other");
    expect(!range.targets.empty(), "a range has targets");
    for (const std::uint64_t offset : {range.begin, range.end - 1}) {
      const io::Target target = io::target_at(file, offset);
      expect(std::ranges::find(range.targets, target) != range.targets.end(),
             "a byte is on a target of its range");
    }
    at = range.end;
  }
  expect(at == file_bytes, "ranges cover the file");
}

}  // namespace

/// The input is an attribute, and the text of mountinfo, and an option.
bool run_lustre(std::span<const std::byte> input) {
  bool understood = false;
  try {
    const io::LustreLayout layout = io::parse_lustre_layout(input);
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{300} << 20, std::uint64_t{1} << 50}) {
      check_map(layout, bytes);
    }
    understood = true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
  }
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const io::StorageFound found =
      io::detect_storage({.magic = io::lustre_magic}, text, "/fsx/shard", std::nullopt);
  expect(!found.sentence.empty(), "what was found is said");
  understood |= !found.mount_point.empty();
  try {
    const io::FsxSystem system = io::parse_fsx(text);
    expect(io::parse_fsx(io::fsx_option(system)) == system, "a system comes back");
    expect(io::fsx_rates(system).disk > 0, "a system gives something");
    understood = true;
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::invalid_argument, "a refusal says that it is one");
  }
  return understood;
}

}  // namespace sprat::fuzz
