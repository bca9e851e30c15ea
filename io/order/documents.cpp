#include "io/order/documents.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::io {

Documents::Documents(const SamplingInput& input)
    : table_(input.table),
      element_bytes_(input.options.element_bytes),
      sample_length_(input.options.length),
      has_separator_(input.options.separator.has_value()) {
  const SamplingOptions& options = input.options;
  require(table_.records() > 0, "the dataset has no documents to pack");
  require(element_bytes_ > 0, options.kind, " needs element_bytes=BYTES, of one token: 2 for u16");
  require(options.length > 0 && options.length <= longest_sample, options.kind,
          " needs length=TOKENS from 1 to ", longest_sample, ", which ", options.length, " is not");
}

std::uint64_t Documents::length(std::uint64_t document) const {
  return elements_in_file(document) + (has_separator_ ? 1 : 0);
}

std::uint64_t Documents::elements_in_file(std::uint64_t document) const {
  const Extent extent = table_.record(document);
  need(extent.bytes % element_bytes_ == 0, table_.file_name(extent.file), ": document ", document,
       " at byte ", extent.offset, " has ", extent.bytes, " bytes, which are no whole tokens of ",
       element_bytes_, " bytes: give element_bytes as the tokens have it");
  return extent.bytes / element_bytes_;
}

void Documents::append(const DocumentPiece& piece, SkippedRecords skipped, Sample& sample) const {
  if (usable_record(piece.document, count(), skipped) == piece.document) {
    append_sound(piece, sample);
    return;
  }
  // What stands in begins with a document, never inside of one: all that comes before it in the
  // files' order then matters no more, sound or not, so ranks that know of different damage come to
  // the same elements once they have read them. Pieces of a long document begin at different ones.
  const std::uint64_t first = piece.document + 1 + piece.begin / sample_length_;
  std::uint64_t wanted = piece.end - piece.begin;
  std::uint64_t empty = 0;  // documents since the last that had an element
  for (std::uint64_t next = usable_record(first % count(), count(), skipped); wanted > 0;
       next = usable_record((next + 1) % count(), count(), skipped)) {
    const std::uint64_t taken = std::min(wanted, length(next));
    empty = taken > 0 ? 0 : empty + 1;
    need(empty <= count(), "all documents of a source that have tokens are damaged: repair or ",
         "replace its files");
    if (taken > 0) {
      append_sound({.document = next, .begin = 0, .end = taken}, sample);
      wanted -= taken;
    }
  }
}

void Documents::append_sound(const DocumentPiece& piece, Sample& sample) const {
  if (sample.lengths.empty()) {
    sample.record = piece.document;
  }
  sample.lengths.push_back(static_cast<std::uint32_t>(piece.end - piece.begin));
  // The separator is the document's last element, and the only one that no file has.
  const std::uint64_t in_file = elements_in_file(piece.document);
  const std::uint64_t end = std::min(piece.end, in_file);
  if (has_separator_) {
    sample.separated.push_back(piece.end > in_file);
  }
  if (piece.begin < end || !has_separator_) {
    const Extent extent = table_.record(piece.document);
    sample.extents.push_back({.file = extent.file,
                              .offset = extent.offset + piece.begin * element_bytes_,
                              .bytes = (end - piece.begin) * element_bytes_});
  }
}

}  // namespace sprat::io
