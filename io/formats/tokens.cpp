// Shards of tokens: plain numbers without a header, as nanoGPT writes them, or behind the header of
// llm.c. A record is one token: samplings cut windows of them.
//
// llm.c's header is 256 i32: magic, version, how many tokens; the rest is 0. Source: its
// dev/data/data_common.py.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

constexpr std::array<std::string_view, 1> tokens_endings = {".bin"};
constexpr std::size_t header_words = 256;
constexpr std::uint64_t header_bytes = header_words * sizeof(std::int32_t);
constexpr std::int32_t evaluation_magic = 20240522;

struct HeaderKind {
  std::int32_t magic, version;
  std::string_view type;
};
constexpr std::array header_kinds = {HeaderKind{20240520, 1, "u16"},
                                     HeaderKind{20240801, 7, "u32"}};

using HeaderWords = std::array<std::int32_t, header_words>;

HeaderWords read_header(IndexedFile& file) {
  HeaderWords words{};
  const std::uint64_t bytes = std::min(header_bytes, file.bytes());
  file.read(0, std::as_writable_bytes(std::span(words)).first(bytes));
  return words;
}

/// The kind whose magic a file begins with; null for other files.
const HeaderKind* kind_of(const HeaderWords& words) {
  const auto* found = std::ranges::find(header_kinds, words[0], &HeaderKind::magic);
  return found == header_kinds.end() ? nullptr : found;
}

/// Tokens without a header may begin with a magic by chance. They do not go on with the version,
/// and then with a thousand bytes of zeros.
bool is_header(const HeaderKind& kind, const HeaderWords& words, std::uint64_t file_bytes) {
  return file_bytes >= header_bytes && words[1] == kind.version && words[2] >= 0 &&
         std::ranges::all_of(words.begin() + 3, words.end(),
                             [](std::int32_t word) { return word == 0; });
}

bool recognises_tokens(IndexedFile& file) {
  const HeaderWords words = read_header(file);
  const HeaderKind* kind = kind_of(words);
  return kind != nullptr && is_header(*kind, words, file.bytes());
}

/// From `first` to the end of the file.
FileIndex whole_tokens(IndexedFile& file, std::uint64_t first, std::string_view type) {
  const std::uint64_t each = element_bytes(type), bytes = file.bytes() - first;
  need(bytes % each == 0, file.path(), " has ", bytes,
       " bytes of tokens, which is no whole number of ", type,
       ": it is cut short, or its tokens have another type");
  FileIndex index;
  // A file without tokens has no records; a stride would make it one of records of a length.
  if (bytes > 0) {
    index.first = first;
    index.stride = each;
    index.count = bytes / each;
  }
  index.context = type;
  return index;
}

FileIndex index_tokens(IndexedFile& file, const FormatOptions& options) {
  const std::string& type = options.token_type;
  require(type.empty() || element_bytes(type) > 0, "there is no type \"", type,
          "\" of tokens; mostly it is u16 or u32");
  if (file.bytes() == 0) {
    return {};  // whatever its tokens would be
  }
  const HeaderWords words = read_header(file);
  const HeaderKind* kind = kind_of(words);
  if (kind != nullptr && is_header(*kind, words, file.bytes())) {
    const auto tokens = static_cast<std::uint64_t>(words[2]);
    const std::uint64_t wanted = header_bytes + tokens * element_bytes(kind->type);
    need(wanted == file.bytes(), file.path(), " has ", file.bytes(), " bytes, and its header says ",
         tokens, " tokens of ", kind->type, ", which need ", wanted, ": the file is ",
         file.bytes() < wanted ? "cut short" : "too long");
    need(type.empty() || type == kind->type, file.path(), " holds ", kind->type,
         " by its header, not ", type, ": leave the type of its tokens away");
    return whole_tokens(file, header_bytes, kind->type);
  }
  need(words[0] != evaluation_magic || words[1] != 1, file.path(),
       " is one of llm.c's files for evaluation (magic ", evaluation_magic,
       "), whose tokens are no text: name the files for training");
  need(kind == nullptr || !type.empty(), file.path(), " begins with llm.c's magic ", words[0],
       ", and has none of its headers (version ", words[1],
       "): if it has no header at all, say the type of its tokens (--token-type u16)");
  need(!type.empty(), file.path(),
       " has no header that says the type of its tokens: say it (--token-type u16)");
  return whole_tokens(file, 0, type);
}

std::vector<Field> token_fields(std::string_view context, std::uint64_t,
                                std::span<const std::byte> bytes) {
  return field_of_elements("tokens", context, bytes);
}

}  // namespace

extern const Format tokens_format;
const Format tokens_format = {
    .name = "tokens",
    .about =
        "Tokens as plain numbers, as nanoGPT (--token-type) and llm.c write them; a record is one",
    .endings = tokens_endings,
    .recognises = recognises_tokens,
    .index = index_tokens,
    .fields = token_fields,
};

}  // namespace sprat::io
