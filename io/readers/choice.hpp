// Which reader reads, and whether past the page cache: by what a probe found and what is read.
#pragma once

#include <cstdint>
#include <string>

#include "io/readers/reader.hpp"

namespace sprat::io {

enum class DirectReads : std::uint8_t { automatic, always, never };

/// What a user wishes.
struct ReaderWish {
  std::string reader = "auto";  ///< Or the name of one.
  DirectReads direct = DirectReads::automatic;
};

/// What is going to be read on this host.
struct ReadingShape {
  std::uint64_t data_bytes = 0;         ///< Of all files.
  std::uint64_t epoch_bytes = 0;        ///< That this host reads in an epoch.
  std::uint64_t free_memory_bytes = 0;  ///< The page cache may grow to.
  std::uint64_t record_bytes = 0;       ///< Of one read, before any merging; a mean.
  bool scattered = false;               ///< Neighbours in the order are none in the file.
};

struct ReaderChoice {
  const ReaderKind* kind = nullptr;
  bool direct = false;
  /// Whole files are worth reading into the page cache beside what the order asks for.
  bool warms_up = false;
  /// Not `direct`, but long reads of what the page cache has not may be quicker past it.
  bool may_bypass = false;
  std::string sentence;  ///< What was chosen, and why: for the report.
};

/// Pure. Throws Error{invalid_argument} if what is wished does not work here, saying why.
ReaderChoice choose_reader(const FileSystem& where, const ReadingShape& shape,
                           const ReaderWish& wish);

}  // namespace sprat::io
