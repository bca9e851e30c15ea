// Files in memory that lie beside each other.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "io/formats/bytes.hpp"

namespace sprat::io {

using FilesByName = std::map<std::string, std::string>;

/// One of them, as formats see it. `files` outlive it.
class MemoryFile final : public IndexedFile {
 public:
  MemoryFile(const FilesByName& files, const std::string& name)
      : files_(files), file_(name, bytes_in(files.at(name))) {}
  const std::string& path() const override { return file_.path(); }
  std::uint64_t bytes() const override { return file_.bytes(); }
  void read(std::uint64_t offset, std::span<std::byte> into) override { file_.read(offset, into); }
  std::unique_ptr<IndexedFile> beside(const std::string& name) override {
    return files_.contains(name) ? std::make_unique<MemoryFile>(files_, name) : nullptr;
  }

 private:
  const FilesByName& files_;
  BytesFile file_;
};

inline std::span<const std::byte> record_in(const std::string& file, RecordSpan span) {
  return bytes_in(file).subspan(span.offset, span.bytes);
}

}  // namespace sprat::io
