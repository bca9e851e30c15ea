// WebDataset's tar files: consecutive members that share a name up to the first dot are a sample,
// and the rest of their names are its fields. A record goes from the header of a sample's first
// member to the end of its last.
//
// Names are read as webdataset's tariterators.py does. A tar is a row of headers of 512 bytes, each
// with its data behind, padded to 512: POSIX ustar, GNU's long names ('L'), pax headers ('x').
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <unordered_set>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

constexpr std::array<std::string_view, 7> webdataset_endings = {
    ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.zstd"};
constexpr std::uint64_t tar_block = 512;
/// Names of members, and what pax says of one. More is no tar.
constexpr std::uint64_t longest_extension = std::uint64_t{1} << 20;
/// Zeros that writers leave behind the end mark: blocks are written by twenty, or by some MiB.
constexpr std::uint64_t longest_padding = std::uint64_t{64} << 20;

constexpr std::uint64_t padded(std::uint64_t bytes) {
  return bytes + (tar_block - bytes % tar_block) % tar_block;
}

using TarBlock = std::array<char, tar_block>;

std::string_view raw_field(const TarBlock& block, std::size_t offset, std::size_t bytes) {
  return {block.data() + offset, bytes};
}
/// Up to the first NUL.
std::string_view text_field(const TarBlock& block, std::size_t offset, std::size_t bytes) {
  const std::string_view field = raw_field(block, offset, bytes);
  return field.substr(0, field.find('\0'));
}

/// A number in octal digits, or of base 256 where the first bit is set; nullopt for anything else.
std::optional<std::uint64_t> tar_number(std::string_view field) {
  std::uint64_t number = 0;
  if (static_cast<unsigned char>(field[0]) == 0x80) {
    for (const char digit : field.substr(1)) {
      if (number >> 55 != 0) {
        return std::nullopt;
      }
      number = number << 8 | static_cast<unsigned char>(digit);
    }
    return number;
  }
  std::size_t at = std::min(field.find_first_not_of(' '), field.size());
  for (; at < field.size() && field[at] >= '0' && field[at] <= '7'; ++at) {
    number = number << 3 | static_cast<std::uint64_t>(field[at] - '0');  // 12 digits: 36 bits
  }
  const std::string_view rest = field.substr(at);
  return rest.find_first_not_of(std::string_view(" \0", 2)) == rest.npos ? std::optional(number)
                                                                         : std::nullopt;
}

bool is_zero(const TarBlock& block) {
  return std::ranges::all_of(block, [](char byte) { return byte == 0; });
}

/// The sum of all bytes, the sum's own field as blanks. Some old writers summed signed bytes.
bool has_right_sum(const TarBlock& block) {
  const auto told = tar_number(raw_field(block, 148, 8));
  std::uint64_t sum = 8 * ' ';
  std::int64_t signed_sum = 8 * ' ';
  for (std::size_t at = 0; at < block.size(); ++at) {
    if (at < 148 || at >= 156) {
      sum += static_cast<unsigned char>(block[at]);
      signed_sum += static_cast<signed char>(block[at]);
    }
  }
  return told && (*told == sum || static_cast<std::int64_t>(*told) == signed_sum);
}

struct TarMember {
  std::string name;
  bool regular = false;
  std::uint64_t header = 0;  ///< Where the first of its headers begins.
  std::uint64_t data = 0, bytes = 0;
};

/// Where an archive may end: behind an end mark, or, for a part of one, wherever its bytes do.
enum class TarEnd { mark, bytes };

/// Goes from member to member. Throws Error naming the file and where.
class TarWalk {
 public:
  TarWalk(IndexedFile& file, TarEnd end) : file_(file), end_(end) {}
  std::optional<TarMember> next();

 private:
  /// What headers before a member's own say of it.
  struct Extension {
    std::optional<std::string> long_name, pax_name;
    std::optional<std::uint64_t> bytes;
  };

  template <class... Args>
  void must(bool holds, const Args&... args) const {
    need(holds, file_.path(), ": at byte ", at_, " ", args...);
  }
  bool at_end();
  void check_padding();
  void extend(char type, std::uint64_t bytes, Extension& extension);
  void read_pax(std::string_view text, char type, Extension& extension);
  std::string payload(std::uint64_t bytes);
  TarMember member(char type, std::uint64_t header, std::uint64_t bytes,
                   const Extension& extension);

  IndexedFile& file_;
  TarEnd end_;
  std::uint64_t at_ = 0;
  TarBlock block_{};
};

bool TarWalk::at_end() {
  if (end_ == TarEnd::bytes && at_ >= file_.bytes()) {
    return true;
  }
  // A tar that was cut between two members looks whole but for the mark, so the mark is asked for.
  must(file_.bytes() >= at_ + tar_block, "the tar ends without an end mark: it is cut short (if ",
       "all members are in it, truncate -s +1024 adds a mark)");
  file_.read(at_, std::as_writable_bytes(std::span(block_)));
  if (!is_zero(block_)) {
    return false;
  }
  check_padding();
  return true;
}

/// Members behind an end mark are of another tar that was appended. Readers of tar do not see
/// them, so records would be lost without a word.
void TarWalk::check_padding() {
  const std::uint64_t begin = at_;
  must(file_.bytes() - begin <= longest_padding, "the tar has its end mark, and ",
       file_.bytes() - begin, " bytes follow: if two tars were joined, make one of their members");
  std::string zeros;
  while (at_ < file_.bytes()) {
    zeros.resize(std::min(std::uint64_t{1} << 16, file_.bytes() - at_));
    file_.read(at_, std::as_writable_bytes(std::span(zeros)));
    must(zeros.find_first_not_of('\0') == zeros.npos,
         "something follows the tar's end mark at byte ", begin,
         ": if two tars were joined, make one of their members");
    at_ += zeros.size();
  }
}

std::string TarWalk::payload(std::uint64_t bytes) {
  must(bytes <= longest_extension, "a header tells a name of ", bytes, " bytes");
  must(bytes <= file_.bytes() - at_, "the tar is cut short, in a member's name");
  std::string text(bytes, '\0');
  file_.read(at_, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Records "LENGTH key=value\n", the length that of the whole record.
void TarWalk::read_pax(std::string_view text, char type, Extension& extension) {
  while (!text.empty() && text.front() != '\0') {
    std::size_t length = 0, at = 0;
    for (; at < std::min<std::size_t>(text.size(), 8) && text[at] >= '0' && text[at] <= '9'; ++at) {
      length = length * 10 + static_cast<std::size_t>(text[at] - '0');
    }
    must(at > 0 && at < text.size() && text[at] == ' ' && length > at + 1 &&
             length <= text.size() && text[length - 1] == '\n',
         "a pax header is damaged");
    const std::string_view record = text.substr(at + 1, length - at - 2);
    const std::size_t equals = record.find('=');
    must(equals != record.npos, "a pax header has a record without \"=\"");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    must(!key.starts_with("GNU.sparse."), "a member is stored as sparse: pack it again without ",
         "--sparse");
    // A global header is of all members that follow, and none can share a name or a size.
    must(type != 'g' || (key != "path" && key != "size"), "a global pax header gives a ", key);
    if (key == "path") {
      extension.pax_name = value;
    } else if (key == "size") {
      must(!value.empty() && value.size() <= 19 &&
               std::ranges::all_of(value, [](char digit) { return digit >= '0' && digit <= '9'; }),
           "a pax header gives a size that is no number");
      extension.bytes = std::stoull(std::string(value));
    }
    text.remove_prefix(length);
  }
}

/// A header that speaks of the next member.
void TarWalk::extend(char type, std::uint64_t bytes, Extension& extension) {
  const std::string text = payload(bytes);
  if (type == 'L') {
    extension.long_name = text.substr(0, text.find('\0'));
  } else if (type != 'K') {  // 'K' is where a link leads to
    read_pax(text, type, extension);
  }
}

TarMember TarWalk::member(char type, std::uint64_t header, std::uint64_t bytes,
                          const Extension& extension) {
  TarMember member{.name = std::string(text_field(block_, 0, 100)), .header = header};
  // GNU's own headers have other things in the prefix's place.
  const bool posix = raw_field(block_, 257, 6) == std::string_view("ustar\0", 6);
  const std::string_view prefix = posix ? text_field(block_, 345, 155) : std::string_view();
  if (!prefix.empty()) {
    member.name = std::string(prefix) + "/" + member.name;
  }
  member.name = extension.pax_name.value_or(extension.long_name.value_or(member.name));
  const bool folder = type == '\0' && member.name.ends_with('/');  // as tars of 1979 say it
  member.regular = (type == '0' || type == '\0' || type == '7') && !folder;
  member.data = at_;
  // Links, folders and devices have no data, whatever their size says.
  const bool empty = folder || (type >= '1' && type <= '6');
  member.bytes = empty ? 0 : extension.bytes.value_or(bytes);
  return member;
}

std::optional<TarMember> TarWalk::next() {
  const std::uint64_t header = at_;
  Extension extension;
  while (true) {
    const bool extended = at_ != header;
    if (at_end()) {
      must(!extended, "the tar ends behind a header that speaks of another member");
      return std::nullopt;
    }
    must(has_right_sum(block_), "there is no header of a tar: its checksum differs");
    const auto bytes = tar_number(raw_field(block_, 124, 12));
    must(bytes.has_value(), "a member has a size that is no number");
    const char type = block_[156];
    must(type != 'S', "a member is stored as sparse: pack it again without --sparse");
    must(type != 'M', "a member goes on from another volume: pack all volumes as one");
    at_ += tar_block;
    if (type == 'L' || type == 'K' || type == 'x' || type == 'X' || type == 'g') {
      extend(type, *bytes, extension);
      at_ += padded(*bytes);
      continue;
    }
    TarMember found = member(type, header, *bytes, extension);
    must(found.bytes <= file_.bytes() && found.data <= file_.bytes() - found.bytes,
         "the tar is cut short: a member of ", found.bytes, " bytes does not fit into a file of ",
         file_.bytes());
    at_ = found.data + padded(found.bytes);
    return found;
  }
}

struct SampleName {
  std::string key, field;
};

/// `^((?:.*/|)[^.]+)[.]([^/]*)$`: up to the first dot in the last part of the path. A last part
/// that begins with a dot belongs to a key that ends in the slash before it, if there is more than
/// the slash.
std::optional<SampleName> split_name(const std::string& name) {
  // Names between two pairs of underscores are about the dataset.
  const std::string_view first = std::string_view(name).substr(0, name.find('/'));
  if (first.size() >= 4 && first.starts_with("__") && first.ends_with("__")) {
    return std::nullopt;
  }
  const std::size_t last = name.rfind('/') + 1;  // 0 if there is no slash
  const std::size_t dot = name.find('.', last);
  if (dot == name.npos) {
    return std::nullopt;
  }
  if (dot == last) {
    const std::string_view before = std::string_view(name).substr(0, dot);
    const std::size_t other_dot = before.rfind('.');
    const std::size_t letters = other_dot == before.npos ? 0 : before.find('/', other_dot) + 1;
    const bool none = other_dot != before.npos && before.find('/', other_dot) == before.npos;
    if (none || letters >= before.size()) {
      return std::nullopt;
    }
  }
  SampleName split{.key = name.substr(0, dot), .field = name.substr(dot + 1)};
  std::ranges::transform(split.field, split.field.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  return split;
}

/// The sample that a walk is in. Its fields are a set, since a tar whose names have their first dot
/// before a number is one sample of all its members, which may be a million.
struct OpenSample {
  std::string key;
  std::unordered_set<std::string> fields;
  RecordSpan span;
};

void add_to_sample(OpenSample& sample, const SampleName& name, const TarMember& member,
                   const std::string& who) {
  const bool fresh =
      name.field != "__key__" && name.field != "__url__" && sample.fields.insert(name.field).second;
  need(fresh, who, ": at byte ", member.header, " the sample ", sample.key,
       " has a second member named ", member.name);
  sample.span.bytes = member.data + member.bytes - sample.span.offset;
}

bool recognises_webdataset(IndexedFile& file) {
  TarBlock block{};
  if (file.bytes() < tar_block) {
    return false;
  }
  file.read(0, std::as_writable_bytes(std::span(block)));
  return raw_field(block, 257, 5) == "ustar" && has_right_sum(block);
}

FileIndex index_webdataset(IndexedFile& file, const FormatOptions&) {
  refuse_packed(file);
  FileIndex index;
  if (file.bytes() == 0) {
    return index;
  }
  TarWalk walk(file, TarEnd::mark);
  std::optional<OpenSample> sample;
  while (const auto member = walk.next()) {
    const auto name = member->regular ? split_name(member->name) : std::nullopt;
    if (!name) {
      continue;
    }
    if (sample && sample->key != name->key) {
      index.spans.push_back(sample->span);
      sample.reset();
    }
    if (!sample) {
      sample = OpenSample{.key = name->key, .fields = {}, .span = {.offset = member->header}};
    }
    add_to_sample(*sample, *name, *member, file.path());
  }
  if (sample) {
    index.spans.push_back(sample->span);
  }
  return index;
}

std::string_view field_type(std::string_view extension) {
  const bool text = extension == "txt" || extension == "text" || extension == "cls";
  return text ? "text" : extension == "json" ? "json" : "bytes";
}

std::vector<Field> webdataset_fields(std::string_view, std::uint64_t,
                                     std::span<const std::byte> bytes) {
  BytesFile file("a sample", bytes);
  TarWalk walk(file, TarEnd::bytes);
  std::vector<Field> fields;
  std::optional<OpenSample> sample;
  while (const auto member = walk.next()) {
    const auto name = member->regular ? split_name(member->name) : std::nullopt;
    if (!name) {
      continue;
    }
    if (!sample) {
      sample = OpenSample{.key = name->key, .fields = {}, .span = {}};
      const auto key = std::make_shared<const std::string>(name->key);
      fields.push_back(
          {.name = "__key__", .type = "text", .shape = {}, .bytes = bytes_in(*key), .owner = key});
    }
    need(sample->key == name->key, "a sample of members ", sample->key, " holds one of ",
         name->key);
    add_to_sample(*sample, *name, *member, file.path());
    fields.push_back({.name = name->field,
                      .type = std::string(field_type(name->field)),
                      .shape = {},
                      .bytes = bytes.subspan(member->data, member->bytes)});
  }
  need(sample.has_value(), "a sample of ", bytes.size(), " bytes has no member of a tar");
  return fields;
}

}  // namespace

extern const Format webdataset_format;
const Format webdataset_format = {
    .name = "webdataset",
    .about = "Tar files: members that share a name up to the first dot are a record",
    .endings = webdataset_endings,
    .recognises = recognises_webdataset,
    .index = index_webdataset,
    .fields = webdataset_fields,
};

}  // namespace sprat::io
