// The files of all sources under one numbering: what they are, and where they lie.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/dataset/dataset.hpp"
#include "io/readers/open_files.hpp"
#include "io/reading/plan.hpp"

namespace sprat::io {

/// A source's file.
struct SourceFile {
  std::uint32_t source = 0, file = 0;
};

/// Immutable.
class FileTable final {
 public:
  explicit FileTable(std::vector<std::shared_ptr<const Dataset>> sources);

  std::uint32_t number(std::uint32_t source, std::uint32_t file) const {
    return first_[source] + file;
  }
  SourceFile source_file(std::uint32_t number) const;
  const Dataset& source(std::uint32_t source) const { return *sources_[source]; }
  const std::string& path(std::uint32_t number) const;
  KnownFile known(std::uint32_t number) const;
  /// All of it on one target, the source's number: where layouts are known, Placement says more.
  /// alignment: of direct reads, or 1.
  PlannedFile place(std::uint32_t number, std::uint32_t alignment) const;
  std::uint32_t sources() const { return static_cast<std::uint32_t>(sources_.size()); }
  std::uint32_t files() const { return first_.back(); }
  /// Of all files together.
  std::uint64_t bytes() const;

 private:
  std::vector<std::shared_ptr<const Dataset>> sources_;
  std::vector<std::uint32_t> first_;  // of each source, and behind the last one
};

}  // namespace sprat::io
