// Documents: records that are sequences of tokens, of which samples are packed.
#pragma once

#include <cstdint>

#include "io/order/sampling.hpp"

namespace sprat::io {

/// Elements [begin, end) of a document.
struct DocumentPiece {
  std::uint64_t document = 0, begin = 0, end = 0;
};

class Documents {
 public:
  /// Throws Error{invalid_argument} if the input does not say how many bytes an element has, or
  /// that samples have from 1 to longest_sample elements.
  explicit Documents(const SamplingInput& input);

  std::uint64_t count() const noexcept { return table_.records(); }
  /// Elements, with the separator behind it, if there is one. Throws Error{unavailable} naming the
  /// file if a document ends inside of one.
  std::uint64_t length(std::uint64_t document) const;
  /// Adds a piece to a sample. A piece of a skipped document is replaced by as many elements of
  /// documents that follow it in the files' order, so that no other sample becomes another one.
  /// Throws Error{unavailable} if there are none.
  void append(const DocumentPiece& piece, SkippedRecords skipped, Sample& sample) const;

 private:
  void append_sound(const DocumentPiece& piece, Sample& sample) const;
  std::uint64_t elements_in_file(std::uint64_t document) const;

  const RecordTable& table_;
  std::uint64_t element_bytes_, sample_length_;
  bool has_separator_;
};

}  // namespace sprat::io
