#include "checkpoint/loader.hpp"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/agreement.hpp"
#include "checkpoint/folder.hpp"
#include "comm/base/check.hpp"
#include "io/checked_file.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;

void read_parts(const Contents& contents, const ModelState& held,
                const std::vector<PartRead>& reads) {
  std::optional<io::CheckedFile> file;
  std::size_t open = contents.files.size();
  for (const PartRead& read : reads) {
    if (read.file != open) {
      const StoredFile& stored = contents.files[read.file];
      file.emplace(contents.folder + "/" + stored.name, stored.record);
      open = read.file;
    }
    const std::span<float> part = held.units[read.unit].values[read.state];
    for (std::uint64_t time = 0; time < read.times; ++time) {
      const auto into = part.subspan(read.offset + time * read.elements_apart, read.count);
      file->read(read.begin + time * read.bytes_apart, std::as_writable_bytes(into));
    }
  }
}

/// Where rank 0 has found the checkpoint, from the path that each rank was given: hosts may mount a
/// folder at places of their own. Where one does not lead to the other, the place itself.
std::string seen_by(const std::string& path, const std::string& at) {
  const std::string way = fs::path(at).lexically_relative(path);
  return way.empty() ? at : way;
}

/// seen_by()'s opposite. Not by the file system: behind a link ".." would be another folder.
std::string seen_from(const std::string& path, const std::string& way) {
  return way == "." ? path : (fs::path(path) / way).lexically_normal().string();
}

/// Hosts that do not share the folder would load different states.
void check_same(Communicator& world, const std::string& path, const Manifest& manifest) {
  const std::string text = write_manifest(manifest);
  const std::uint64_t mine = XXH3_64bits(text.data(), text.size());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(elements(std::span(&mine, 1)), elements(all)).wait();
  const auto other = std::ranges::find_if(all, [&](std::uint64_t one) { return one != all[0]; });
  const auto named = [&](auto rank) { return rank_in_job(world, static_cast<int>(rank)); };
  require(other == all.end(), "ranks ", named(0), " and ",
          other == all.end() ? 0 : named(other - all.begin()), " find different checkpoints at ",
          path, "; every rank needs the same folder, on a file system that all hosts share");
}

/// The ranks that hold the same part of units that are cut into so many parts, ordered by copy. All
/// ranks of `world` make their groups at the same time.
Communicator holders_of_part(Communicator& world, const ModelState& held, int parts) {
  const auto own = std::ranges::find_if(held.units, [&](const StoredUnit& unit) {
    return unit.is_held() && unit.parts == parts && unit.copies > 1;
  });
  if (own == held.units.end()) {
    return *world.split(world.rank(), 0, "", Failing::together);  // a rank of other units
  }
  return *world.split(own->holders[static_cast<std::size_t>(own->part)], own->copy, "",
                      Failing::together);
}

/// Each unit's values from the copy that has read them to the others that hold the same part.
void spread(Communicator& world, const ModelState& held, LoadWhat what) {
  std::map<int, Communicator> groups;  // by parts: units that are cut alike
  for (const StoredUnit& unit : held.units) {
    if (unit.copies > 1 && !groups.contains(unit.parts)) {
      groups.emplace(unit.parts, holders_of_part(world, held, unit.parts));
    }
  }
  for (std::size_t u = 0; u < held.units.size(); ++u) {
    const StoredUnit& unit = held.units[u];
    if (!unit.is_held() || unit.copies == 1) {
      continue;
    }
    const std::size_t states = what == LoadWhat::parameters ? 1 : unit.values.size();
    for (std::size_t state = 0; state < states; ++state) {
      groups.at(unit.parts).broadcast(elements(unit.values[state]), unit.disk_copy(u)).wait();
    }
  }
}

}  // namespace

Manifest load(Communicator& world, const ModelState& held, const std::string& path, LoadWhat what) {
  Manifest manifest;
  std::vector<PartRead> reads;
  // Rank 0 alone looks for it: while another job saves into the folder, or where hosts see its
  // changes late, ranks would find different ones.
  std::string at;
  agree(world, outcome_of([&] {
          if (world.rank() == 0) {
            at = checkpoint_at(path);
          }
        }));
  at = seen_from(path, text_of(world, seen_by(path, at), 0));
  agree(world, outcome_of([&] {
          manifest = read_manifest(at);
          reads = plan_load(at, manifest.contents, held, what);
        }));
  check_same(world, at, manifest);
  agree(world, outcome_of([&] { read_parts(manifest.contents, held, reads); }));
  spread(world, held, what);
  return manifest;
}

}  // namespace sprat::fsdp
