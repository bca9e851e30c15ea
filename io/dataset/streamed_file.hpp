// A file on disk as formats read it while they index: forwards, in steps of any size.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checked_file.hpp"
#include "io/formats/format.hpp"

namespace sprat::io {

/// A file that was read beside another, as an .idx beside its .bin.
struct Companion {
  std::string name;
  FileStamp stamp;

  friend bool operator==(const Companion&, const Companion&) = default;
};

/// One thread at a time. Holds some MiB of what comes next.
class StreamedFile final : public IndexedFile {
 public:
  /// Throws Error{unavailable} naming the path if it is no file, or is not there.
  explicit StreamedFile(const std::string& path);

  const std::string& path() const override { return file_.path(); }
  std::uint64_t bytes() const override { return file_.bytes(); }
  void read(std::uint64_t offset, std::span<std::byte> into) override;
  std::unique_ptr<IndexedFile> beside(const std::string& name) override;

  FileStamp stamp() const { return {.bytes = bytes(), .modified_ns = file_.modified_ns()}; }
  /// What beside() gave.
  const std::vector<Companion>& companions() const { return companions_; }
  /// Throws Error{unavailable} naming the path if it changed since it was opened.
  void require_unchanged() const;

 private:
  void fill(std::uint64_t offset);

  ReadFile file_;
  std::vector<std::byte> window_;
  std::uint64_t begin_ = 0;  // of the window in the file
  std::size_t next_bytes_;   // of the next window
  std::vector<Companion> companions_;
};

/// Of what lies at the path; throws Error{unavailable} naming it if nothing does.
FileStamp stamp_of(const std::string& path);
FileStamp stamp_from(const struct stat& status);

}  // namespace sprat::io
