// Asking when a file is first planned is the latest moment that still cuts its first requests where
// they ought to be cut. Opening all files when a loader starts would be a storm of questions to the
// one metadata server; a thread that asks ahead would open each file twice.
#include "io/loader/lustre/placement.hpp"

#include <algorithm>
#include <utility>

#include "io/lustre/layout.hpp"
#include "sprat/error.hpp"

namespace sprat::io {
namespace {

/// Indices of OSTs have 16 bits, and the last one is none.
constexpr Target targets_of_a_mount = 1 << 16;
/// Names of lone files are kept for so many targets.
constexpr std::size_t most_lone_files = 4096;

std::size_t layout_memory(const FileLayout& layout) {
  std::size_t bytes = 128;  // the entry, and its places in two tables
  for (const StripedRange& range : layout) {
    bytes += sizeof range + range.targets.capacity() * sizeof(Target);
  }
  return bytes;
}

void number_targets(FileLayout& layout, int mount, Target unknown) {
  for (StripedRange& range : layout) {
    for (Target& target : range.targets) {
      target = target == unknown ? unknown : placed_target(mount, target);
    }
  }
}

}  // namespace

Target placed_target(int mount, Target target) {
  // An index that no Lustre gives would be another file system's.
  return mount * targets_of_a_mount + std::clamp(target, metadata_target, targets_of_a_mount - 2);
}

Target unplaced_target(std::uint32_t source) {
  return unknown_target - static_cast<Target>(source);
}

Placement::Placement(std::shared_ptr<const FileTable> files, std::shared_ptr<LustreMounts> mounts,
                     std::vector<bool> on_lustre, std::size_t memory_bytes)
    : files_(std::move(files)),
      mounts_(std::move(mounts)),
      on_lustre_(std::move(on_lustre)),
      memory_bytes_(memory_bytes) {}

Placement::Placed Placement::place(std::uint32_t file, std::uint32_t alignment, const Open& open) {
  Placed placed{.file = files_->place(file, alignment)};
  const std::uint32_t source = files_->source_file(file).source;
  // The numbers from 0 on are those of storage targets here.
  placed.file.target = unplaced_target(source);
  if (!on_lustre_[source]) {
    return placed;
  }
  const KnownLayout* entry = find(file);
  if (entry == nullptr) {
    entry = ask(file, open);
  }
  if (entry != nullptr) {
    placed.file.layout = &entry->layout;
    placed.released = entry->released;
  }
  return placed;
}

const Placement::KnownLayout* Placement::find(std::uint32_t file) {
  const auto found = by_file_.find(file);
  if (found == by_file_.end()) {
    return nullptr;
  }
  recent_.splice(recent_.begin(), recent_, found->second);
  return &recent_.front();
}

const Placement::KnownLayout* Placement::ask(std::uint32_t file, const Open& open) {
  OpenFiles::Opened opened;
  try {
    opened = open(file);
  } catch (const Error&) {
    return nullptr;  // its first read meets the same, and ends the batch with it
  }
  if (opened.error != 0) {
    return nullptr;  // and here the read knows whether to try again
  }
  const int descriptor = opened.file->descriptor();
  KnownLayout entry{.file = file};
  std::string unknown_because = "it is on another file system than its source's first file";
  const Target unknown = unplaced_target(files_->source_file(file).source);
  if (const LustreMount* mount =
          mounts_->of(opened.file->device(), descriptor, files_->path(file))) {
    // A layout says by itself whether the file is released. `blocks` would bring a second question,
    // to the metadata server, for which the thread that fetches has no time.
    LustreFile told =
        examine_lustre_file(*mounts_->probe(), descriptor,
                            {.bytes = files_->known(file).stamp.bytes, .blocks = 1}, unknown);
    number_targets(told.layout, mount->number, unknown);
    entry.layout = std::move(told.layout);
    entry.released = told.released;
    unknown_because = told.unknown_because;
  }
  note(entry, unknown_because);
  entry.bytes = layout_memory(entry.layout);
  bytes_ += entry.bytes;
  recent_.push_front(std::move(entry));
  by_file_[file] = recent_.begin();
  while (bytes_ > memory_bytes_ && recent_.size() > 1) {
    forget(recent_.back().file);
  }
  return &recent_.front();
}

void Placement::forget(std::uint32_t file) {
  const auto found = by_file_.find(file);
  if (found != by_file_.end()) {
    bytes_ -= found->second->bytes;
    recent_.erase(found->second);
    by_file_.erase(found);
  }
}

void Placement::note(const KnownLayout& entry, const std::string& unknown_because) {
  const std::lock_guard lock(mutex_);
  if (entry.released) {
    ++notes_.released;
    return;
  }
  if (!unknown_because.empty()) {
    if (notes_.unknown++ == 0) {
      notes_.unknown_file = files_->path(entry.file);
      notes_.unknown_because = unknown_because;
    }
    return;
  }
  ++notes_.known;
  std::set<Target> own;
  for (const StripedRange& range : entry.layout) {
    own.insert(range.targets.begin(), range.targets.end());
  }
  if (own.size() == 1 && notes_.lone_files.size() < most_lone_files) {
    notes_.lone_files.try_emplace(*own.begin(), files_->path(entry.file));
  }
  notes_.targets.merge(own);
}

PlacementNotes Placement::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

}  // namespace sprat::io
