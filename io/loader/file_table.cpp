// Sources one after another: the planner and the cache of descriptors know files by one number, and
// a search over the few sources finds the file again.
#include "io/loader/file_table.hpp"

#include <algorithm>
#include <limits>

#include "comm/base/check.hpp"

namespace sprat::io {

FileTable::FileTable(std::vector<std::shared_ptr<const Dataset>> sources)
    : sources_(std::move(sources)) {
  std::uint64_t files = 0;
  for (const std::shared_ptr<const Dataset>& source : sources_) {
    first_.push_back(static_cast<std::uint32_t>(files));
    files += source->files().size();
    require(files <= std::numeric_limits<std::uint32_t>::max(), "the sources have ", files,
            " files; pack samples into fewer");
  }
  first_.push_back(static_cast<std::uint32_t>(files));
}

SourceFile FileTable::source_file(std::uint32_t number) const {
  const auto behind = std::ranges::upper_bound(first_, number);
  const auto source = static_cast<std::uint32_t>(behind - first_.begin() - 1);
  return {.source = source, .file = number - first_[source]};
}

const std::string& FileTable::path(std::uint32_t number) const {
  const SourceFile own = source_file(number);
  return sources_[own.source]->files()[own.file];
}

KnownFile FileTable::known(std::uint32_t number) const {
  const SourceFile own = source_file(number);
  const Dataset& source = *sources_[own.source];
  return {.path = source.files()[own.file], .stamp = source.stamp(own.file)};
}

PlannedFile FileTable::place(std::uint32_t number, std::uint32_t alignment) const {
  const SourceFile own = source_file(number);
  return {.bytes = sources_[own.source]->stamp(own.file).bytes,
          .layout = nullptr,
          // Sources may lie on different file systems: one queue for each never lets a slow one
          // hold back the others.
          .target = static_cast<Target>(own.source),
          .alignment = alignment};
}

std::uint64_t FileTable::bytes() const {
  std::uint64_t bytes = 0;
  for (const std::shared_ptr<const Dataset>& source : sources_) {
    for (std::uint32_t file = 0; file < source->files().size(); ++file) {
      bytes += source->stamp(file).bytes;
    }
  }
  return bytes;
}

}  // namespace sprat::io
