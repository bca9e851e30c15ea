// JSON lines: a record is a line that is an object, its fields are the object's keys.
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

using Json = nlohmann::json;
constexpr std::size_t line_piece_bytes = std::size_t{1} << 20;
constexpr std::array<std::string_view, 2> jsonl_endings = {".jsonl", ".ndjson"};
constexpr std::string_view blanks = " \t\r";
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

/// Finds lines in pieces of a file that come in order. Lines of blanks alone are none, and blanks
/// around a line are none of its bytes.
class LineFinder {
 public:
  void add(std::uint64_t offset, std::string_view piece) {
    std::size_t at = 0;
    while (at < piece.size()) {
      const std::size_t end = std::min(piece.find('\n', at), piece.size());
      note(offset + at, piece.substr(at, end - at));
      at = end;
      if (at < piece.size()) {
        finish_line();
        ++at;
      }
    }
  }
  std::vector<RecordSpan> finish() {
    finish_line();
    return std::move(spans_);
  }

 private:
  /// A part of a line: pieces end anywhere.
  void note(std::uint64_t offset, std::string_view part) {
    const std::size_t first = part.find_first_not_of(blanks);
    if (first == part.npos) {
      return;
    }
    begin_ = end_ == 0 ? offset + first : begin_;
    end_ = offset + part.find_last_not_of(blanks) + 1;
  }
  void finish_line() {
    if (end_ > 0) {
      spans_.push_back({.offset = begin_, .bytes = end_ - begin_});
    }
    begin_ = end_ = 0;
  }

  std::vector<RecordSpan> spans_;
  std::uint64_t begin_ = 0, end_ = 0;  // of the line we are in; an end of 0: nothing of it yet
};

bool no_jsonl_magic(IndexedFile&) { return false; }

/// Where each letter is two bytes, no line is one, and all of them would be told as damaged.
void refuse_wide_letters(IndexedFile& file) {
  const std::string head = head_of(file, 2);
  need(head != "\xff\xfe" && head != "\xfe\xff", file.path(),
       " is UTF-16, and JSON lines are UTF-8: iconv -f UTF-16 -t UTF-8 it first");
}

FileIndex index_jsonl(IndexedFile& file, const FormatOptions&) {
  refuse_packed(file);
  refuse_wide_letters(file);
  LineFinder lines;
  std::string piece;
  std::uint64_t offset = head_of(file, 3) == byte_order_mark ? 3 : 0;
  while (offset < file.bytes()) {
    piece.resize(std::min<std::uint64_t>(line_piece_bytes, file.bytes() - offset));
    file.read(offset, std::as_writable_bytes(std::span(piece)));
    lines.add(offset, piece);
    offset += piece.size();
  }
  FileIndex index;
  index.spans = lines.finish();
  return index;
}

// The rest works on a line that nlohmann's parser has accepted, so only its places are looked for.

std::size_t skip_blanks(std::string_view json, std::size_t at) {
  return std::min(json.find_first_not_of(" \t\r\n", at), json.size());
}

/// From the opening quote to behind the closing one.
std::size_t skip_quotes(std::string_view json, std::size_t at) {
  for (++at; json[at] != '"'; ++at) {
    at += json[at] == '\\' ? 1 : 0;
  }
  return at + 1;
}

/// To behind the value that begins at `at`.
std::size_t skip_value(std::string_view json, std::size_t at) {
  int open = 0;
  do {
    const char letter = json[at];
    if (letter == '"') {
      at = skip_quotes(json, at);
    } else if (letter == '{' || letter == '[') {
      ++open;
      ++at;
    } else if (letter == '}' || letter == ']') {
      --open;
      ++at;
    } else if (open > 0) {
      ++at;
    } else {
      at = std::min(json.find_first_of(",}] \t\r\n", at), json.size());  // a number or a word
    }
  } while (open > 0);
  return at;
}

/// A text between quotes. Without escapes it lies in the record as it is.
Field field_of_text(std::string name, std::string_view quoted) {
  const std::string_view inside = quoted.substr(1, quoted.size() - 2);
  Field field{.name = std::move(name), .type = "text", .shape = {}, .bytes = bytes_in(inside)};
  if (inside.find('\\') != inside.npos) {
    const auto text = std::make_shared<const std::string>(Json::parse(quoted).get<std::string>());
    field.bytes = bytes_in(*text);
    field.owner = text;
  }
  return field;
}

std::vector<Field> jsonl_fields(std::string_view, std::uint64_t, std::span<const std::byte> bytes) {
  const std::string_view json = text_in(bytes);
  std::size_t at = skip_blanks(json, 0);
  need(at < json.size() && json[at] == '{' && Json::accept(json), "a line of ", json.size(),
       " bytes is no JSON object; it begins with ",
       Json(std::string(json.substr(0, 40))).dump(-1, ' ', true, Json::error_handler_t::replace));
  std::vector<Field> fields;
  std::set<std::string> names;
  at = skip_blanks(json, at + 1);
  while (json[at] != '}') {
    const std::size_t behind_key = skip_quotes(json, at);
    std::string name = Json::parse(json.substr(at, behind_key - at)).get<std::string>();
    // Readers that keep the first of two equal keys would see another record than those that keep
    // the last. JsonKeys would find them as well, but it watches a parse that makes values, and
    // here each record's values stay the bytes they are.
    need(names.insert(name).second, "a line of JSON gives the key ", Json(name).dump(), " twice");
    at = skip_blanks(json, skip_blanks(json, behind_key) + 1);  // past the colon
    const std::size_t behind_value = skip_value(json, at);
    const std::string_view value = json.substr(at, behind_value - at);
    fields.push_back(
        value.front() == '"'
            ? field_of_text(std::move(name), value)
            : Field{
                  .name = std::move(name), .type = "json", .shape = {}, .bytes = bytes_in(value)});
    at = skip_blanks(json, behind_value);
    at = json[at] == ',' ? skip_blanks(json, at + 1) : at;
  }
  return fields;
}

}  // namespace

extern const Format jsonl_format;
const Format jsonl_format = {
    .name = "jsonl",
    .about = "JSON lines: a record is a line, its fields are the keys of the object",
    .endings = jsonl_endings,
    .recognises = no_jsonl_magic,
    .index = index_jsonl,
    .fields = jsonl_fields,
};

}  // namespace sprat::io
