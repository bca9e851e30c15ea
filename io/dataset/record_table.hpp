// What orders need to know of a dataset: how many records it has, and where they are.
#pragma once

#include <cstdint>
#include <string>

#include "io/dataset/extent.hpp"

namespace sprat::io {

/// Immutable; any thread may ask, several at once.
class RecordTable {
 public:
  virtual ~RecordTable() = default;

  virtual std::uint64_t records() const noexcept = 0;
  /// index < records().
  virtual Extent record(std::uint64_t index) const = 0;
  virtual std::uint32_t file_count() const noexcept = 0;
  /// For people.
  virtual std::string file_name(std::uint32_t file) const = 0;
  /// The first record of a file, and behind the last file, at file_count(), records(). An empty
  /// file has that of the next.
  virtual std::uint64_t first_record(std::uint32_t file) const = 0;
  /// Bytes of one record where each file's records all have this length and lie one behind the
  /// other, as tokens do; else 0.
  virtual std::uint64_t record_bytes() const noexcept = 0;
  /// Equal on ranks that see one dataset, and different for others.
  virtual std::uint64_t fingerprint() const noexcept = 0;
};

}  // namespace sprat::io
