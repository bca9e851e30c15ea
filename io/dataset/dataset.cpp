#include "io/dataset/dataset.hpp"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"
#include "io/dataset/index.hpp"
#include "io/dataset/indexer.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

std::uint64_t fingerprint_of(const DatasetIndex& index) {
  std::string what;
  for (const NamedRecords& file : index.files) {
    append_text(what, name_in(file.name));
    for (const std::uint64_t number : {file.records.stamp.bytes, file.records.records()}) {
      what.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
  }
  return XXH3_64bits(what.data(), what.size());
}

/// That of all records, or 0. Files without records have none to differ.
std::uint64_t common_stride(const std::vector<FileRecords>& files) {
  std::uint64_t stride = 0;
  for (const FileRecords& file : files) {
    if (file.records() > 0) {
      if (file.stride == 0 || (stride != 0 && stride != file.stride)) {
        return 0;
      }
      stride = file.stride;
    }
  }
  return stride;
}

}  // namespace

struct Dataset::Impl {
  const Format* format = nullptr;
  std::vector<std::string> paths;
  std::vector<FileRecords> files;
  std::vector<std::uint64_t> first;  // record of each file, and behind the last
  std::uint64_t record_bytes = 0, fingerprint = 0;
};

Dataset::Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::shared_ptr<const Dataset> Dataset::open(const DatasetOptions& options) {
  IndexedDataset made = index_dataset(options, Trust::names, {});
  auto impl = std::make_shared<Impl>();
  impl->format = &format_named(made.index.format);
  impl->fingerprint = fingerprint_of(made.index);
  const std::size_t files = made.index.files.size();
  need(files <= UINT32_MAX, "a dataset of ", files, " files is too large");
  impl->paths.reserve(files);
  impl->files.reserve(files);
  impl->first.reserve(files + 1);
  impl->first.push_back(0);
  for (NamedRecords& file : made.index.files) {
    impl->paths.push_back(path_in(made.folder, file.name));
    impl->files.push_back(std::move(file.records));
    impl->first.push_back(impl->first.back() + impl->files.back().records());
  }
  impl->record_bytes = common_stride(impl->files);
  return std::shared_ptr<const Dataset>(new Dataset(std::move(impl)));
}

const Format& Dataset::format() const noexcept { return *impl_->format; }

std::span<const std::string> Dataset::files() const noexcept { return impl_->paths; }

const FileStamp& Dataset::stamp(std::uint32_t file) const { return impl_->files.at(file).stamp; }

void Dataset::require_unchanged(std::uint32_t file, int descriptor) const {
  const FileStamp& was = stamp(file);
  struct stat status {};
  need(fstat(descriptor, &status) == 0, "cannot look at ", impl_->paths[file], ": ",
       std::strerror(errno));
  const FileStamp is = stamp_from(status);
  need(is == was, impl_->paths[file], " is not the file that was indexed: it had ", was.bytes,
       " bytes and has ", is.bytes, is.bytes == was.bytes ? ", written at another time" : "",
       "; index it again (sprat io index) and start anew");
}

const std::string& Dataset::context(std::uint32_t file) const {
  return impl_->files.at(file).context;
}

std::uint64_t Dataset::records() const noexcept { return impl_->first.back(); }

Extent Dataset::record(std::uint64_t index) const {
  require(index < records(), "record ", index, " of a dataset of ", records());
  // The last file that begins at or before it. Files without records begin where the next one does.
  const auto behind = std::ranges::upper_bound(impl_->first, index);
  const auto file = static_cast<std::uint32_t>(behind - impl_->first.begin() - 1);
  const RecordSpan span = impl_->files[file].span(index - impl_->first[file]);
  return {.file = file, .offset = span.offset, .bytes = span.bytes};
}

std::uint64_t Dataset::first_record(std::uint32_t file) const { return impl_->first.at(file); }

std::uint64_t Dataset::record_bytes() const noexcept { return impl_->record_bytes; }

std::uint64_t Dataset::fingerprint() const noexcept { return impl_->fingerprint; }

}  // namespace sprat::io
