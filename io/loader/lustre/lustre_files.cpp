#include "io/loader/lustre/lustre_files.hpp"

#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "io/lustre/tunables.hpp"

namespace sprat::io {

std::shared_ptr<const LustreFiles> find_lustre(std::shared_ptr<const FsProbe> probe,
                                               std::shared_ptr<const FileTable> files,
                                               const std::optional<FsxSystem>& declared) {
  auto lustre = std::make_shared<LustreFiles>();
  lustre->mounts = std::make_shared<LustreMounts>(probe, declared);
  std::vector<bool> on_lustre;
  for (std::uint32_t source = 0; source < files->sources(); ++source) {
    // A source's files lie together as a rule. One that does not is told from them by its device.
    const std::uint32_t first = files->number(source, 0);
    const FileLook looked = look_at_file(*lustre->mounts, files->path(first));
    on_lustre.push_back(looked.mount != nullptr);
    if (looked.mount != nullptr && lustre->sentence.empty()) {
      lustre->sentence = looked.mount->found.sentence;
    }
    if (first == 0) {
      lustre->first_on_lustre = looked.mount != nullptr;
      lustre->first_released = looked.released;
    }
  }
  if (lustre->sentence.empty()) {
    return nullptr;
  }
  const ClientSettings settings = read_client_settings(*probe);
  lustre->target_bytes = target_cap_bytes(settings);
  if (const Tunable* targets = settings.find("lov.*.numobd")) {
    lustre->targets = targets->most;
  }
  lustre->placement = std::make_shared<Placement>(std::move(files), lustre->mounts, on_lustre);
  return lustre;
}

std::string LustreFiles::describe() const {
  const PlacementNotes notes = placement->notes();
  const std::string all = targets ? text(" of ", *targets) : std::string();
  std::string words =
      text(sentence,
           "; reads end at stripes and wait in a queue for each target: ", notes.targets.size(),
           all, " targets so far, of ", notes.known, " files");
  if (notes.unknown > 0) {
    words += text("; of ", notes.unknown, " files it is not known where they lie, the first is ",
                  notes.unknown_file, " (", notes.unknown_because,
                  "): reads of them wait in one queue for each source");
  }
  if (notes.released > 0) {
    words += text("; ", notes.released, " files were released when they were planned");
  }
  return words;
}

StorageFacts LustreFiles::facts(StorageFacts facts) const {
  facts.lone_files = placement->notes().lone_files;
  return facts;
}

}  // namespace sprat::io
