// Megatron's pairs of .bin and .idx: a record is a sequence. The .bin is the dataset's file; where
// its sequences lie says the .idx beside it.
//
// An .idx is "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 documents + 1, i32 lengths,
// i64 places, i64 documents, and perhaps an i8 mode a sequence. Nothing of it is aligned. Source:
// megatron/core/datasets/indexed_dataset.py.
#include <algorithm>
#include <array>
#include <string>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

using namespace std::string_view_literals;

constexpr std::array<std::string_view, 1> megatron_endings = {".bin"};
constexpr std::string_view idx_magic = "MMIDIDX\0\0"sv;
constexpr std::uint64_t idx_version = 1, idx_header_bytes = 34;
constexpr std::uint64_t sequences_at_once = 1 << 16;
// By the code in the .idx; 0 is none.
constexpr std::array<std::string_view, 9> idx_types = {"",    "u8",  "i8",  "i16", "i32",
                                                       "i64", "f64", "f32", "u16"};

std::string idx_name(std::string_view path) {
  const std::string_view name = name_in(path);
  return std::string(name.substr(0, name.rfind('.'))) + ".idx";
}

struct IdxHeader {
  std::string type;
  std::uint64_t sequences = 0;
};

IdxHeader read_idx_header(IndexedFile& idx) {
  need(head_of(idx, idx_magic.size()) == idx_magic, idx.path(), " does not begin with MMIDIDX");
  need(idx.bytes() >= idx_header_bytes, idx.path(), " has ", idx.bytes(),
       " bytes, fewer than its header has: it is cut short");
  const auto version = read_number<std::uint64_t>(idx, 9);
  need(version == idx_version, idx.path(), " has version ", version, "; known is ", idx_version);
  const auto code = read_number<std::uint8_t>(idx, 17);
  need(code > 0 && code < idx_types.size(), idx.path(), " gives its tokens the type ", int{code},
       ", which is none of 1 to ", idx_types.size() - 1);
  IdxHeader header{.type = std::string(idx_types[code]),
                   .sequences = read_number<std::uint64_t>(idx, 18)};
  const auto documents = read_number<std::uint64_t>(idx, 26);
  // Counts may lie: they are bounded by the file before anything is multiplied.
  const std::uint64_t room = idx.bytes() - idx_header_bytes;
  need(header.sequences <= room / 12 && documents <= room / 8, idx.path(), " has ", idx.bytes(),
       " bytes, too few for ", header.sequences, " sequences and ", documents, " documents");
  const std::uint64_t wanted = header.sequences * 12 + documents * 8;
  need(room == wanted || room == wanted + header.sequences, idx.path(), " has ", idx.bytes(),
       " bytes, and its header asks for ", idx_header_bytes + wanted, ": it is ",
       room < wanted ? "cut short" : "too long");
  return header;
}

bool recognises_megatron(IndexedFile& file) {
  if (!file.path().ends_with(".bin")) {
    return false;
  }
  const auto idx = file.beside(idx_name(file.path()));
  return idx != nullptr && head_of(*idx, idx_magic.size()) == idx_magic;
}

/// Checks that sequences follow each other from the begin of the .bin to its end, as they are
/// written: any other place would be of another .bin.
FileIndex index_megatron(IndexedFile& file, const FormatOptions&) {
  const std::string name = idx_name(file.path());
  const auto idx = file.beside(name);
  need(idx != nullptr, file.path(), " has no ", name, " beside it, which says where sequences are");
  const IdxHeader header = read_idx_header(*idx);
  const std::uint64_t each = element_bytes(header.type);
  // Sequences of nothing would cost memory, and no byte of the .bin.
  need(header.sequences <= file.bytes() / each, file.path(), " has ", file.bytes() / each,
       " tokens, and ", name, " speaks of ", header.sequences,
       " sequences: the .idx is of another .bin");
  FileIndex index;
  index.context = header.type;
  index.spans.reserve(header.sequences);
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> places;
  std::uint64_t end = 0;
  for (std::uint64_t from = 0; from < header.sequences; from += lengths.size()) {
    lengths.resize(std::min(sequences_at_once, header.sequences - from));
    places.resize(lengths.size());
    idx->read(idx_header_bytes + from * 4, std::as_writable_bytes(std::span(lengths)));
    idx->read(idx_header_bytes + header.sequences * 4 + from * 8,
              std::as_writable_bytes(std::span(places)));
    for (std::size_t at = 0; at < lengths.size(); ++at) {
      need(lengths[at] >= 0 && places[at] >= 0 && static_cast<std::uint64_t>(places[at]) == end,
           idx->path(), ": sequence ", from + at, " has ", lengths[at], " tokens at byte ",
           places[at], ", and the one before ends at byte ", end);
      const std::uint64_t bytes = static_cast<std::uint64_t>(lengths[at]) * each;
      index.spans.push_back({.offset = end, .bytes = bytes});
      end += bytes;
    }
  }
  need(end == file.bytes(), file.path(), " has ", file.bytes(), " bytes, and ", name, " speaks of ",
       end, ": the .bin is ", file.bytes() < end ? "cut short" : "too long",
       ", or the .idx is of another one");
  return index;
}

std::vector<Field> sequence_fields(std::string_view context, std::uint64_t,
                                   std::span<const std::byte> bytes) {
  return field_of_elements("tokens", context, bytes);
}

}  // namespace

extern const Format megatron_format;
const Format megatron_format = {
    .name = "megatron",
    .about = "Megatron's .bin with its .idx beside it: a record is a sequence of tokens",
    .endings = megatron_endings,
    .recognises = recognises_megatron,
    .index = index_megatron,
    .fields = sequence_fields,
};

}  // namespace sprat::io
