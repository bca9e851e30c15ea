// Texts. A record is a document: the whole file, or what is between separators, as
// "<|endoftext|>" in files of many stories.
#include <algorithm>
#include <array>
#include <string>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

constexpr std::size_t text_piece_bytes = std::size_t{1} << 20;
constexpr std::array<std::string_view, 2> text_endings = {".txt", ".text"};

/// The spans between separators; those of no bytes are no documents.
std::vector<RecordSpan> documents_of(IndexedFile& file, std::string_view separator) {
  std::vector<RecordSpan> spans;
  std::uint64_t begin = 0, offset = 0;
  const auto end_at = [&](std::uint64_t end) {
    if (end > begin) {
      spans.push_back({.offset = begin, .bytes = end - begin});
    }
  };
  std::string piece;
  // A separator may lie over the border of two pieces, so a piece begins with the last bytes of the
  // one before, one fewer than the separator has.
  while (offset < file.bytes()) {
    const std::size_t kept = piece.size();
    const std::size_t fresh = std::min<std::uint64_t>(text_piece_bytes, file.bytes() - offset);
    piece.resize(kept + fresh);
    file.read(offset, std::as_writable_bytes(std::span(piece).subspan(kept)));
    const std::uint64_t origin = offset - kept;
    std::size_t from = 0;
    for (std::size_t at; (at = piece.find(separator, from)) != piece.npos;) {
      end_at(origin + at);
      from = at + separator.size();
      begin = origin + from;
    }
    // What belongs to a separator that was found cannot begin another.
    from = std::max(from, piece.size() - std::min(piece.size(), separator.size() - 1));
    piece.erase(0, from);
    offset += fresh;
  }
  end_at(file.bytes());
  return spans;
}

bool no_text_magic(IndexedFile&) { return false; }

FileIndex index_text(IndexedFile& file, const FormatOptions& options) {
  refuse_packed(file);
  FileIndex index;
  if (!options.separator.empty()) {
    index.spans = documents_of(file, options.separator);
  } else if (file.bytes() > 0) {
    index.spans = {{.offset = 0, .bytes = file.bytes()}};
  }
  return index;
}

std::vector<Field> text_fields(std::string_view, std::uint64_t, std::span<const std::byte> bytes) {
  return {{.name = "text", .type = "text", .shape = {}, .bytes = bytes}};
}

}  // namespace

extern const Format text_format;
const Format text_format = {
    .name = "text",
    .about = "Plain text: a record is a file, or what is between separators (--separator)",
    .endings = text_endings,
    .recognises = no_text_magic,
    .index = index_text,
    .fields = text_fields,
};

}  // namespace sprat::io
