// MosaicML's MDS shards: a record is a sample, its fields are the columns.
//
// A shard is u32 n, u32 offsets[n + 1] from the file's begin, JSON with the columns, and the
// samples: u32 sizes of the columns that have no fixed one, then all columns' bytes. index.json
// lists a folder's shards. Source: streaming/base/format/mds/{writer,reader,encodings}.py.
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

using Json = nlohmann::json;
/// Shards that are packed have other names, and are claimed so that they can be refused by name.
constexpr std::array<std::string_view, 7> mds_endings = {
    ".mds", ".mds.zstd", ".mds.zst", ".mds.gz", ".mds.bz2", ".mds.br", ".mds.snappy"};
constexpr std::uint64_t longest_config = std::uint64_t{16} << 20;
constexpr std::uint64_t longest_catalogue = std::uint64_t{1} << 30;
constexpr std::uint64_t offsets_at_once = 1 << 16;

/// How a column's values are written, and as what they are given.
struct EncodingKind {
  std::string_view encoding, type;
};
// Encodings that are not here, which users may add, are given as bytes.
constexpr std::array encoding_kinds = {
    EncodingKind{"str", "text"},       EncodingKind{"str_int", "text"},
    EncodingKind{"str_float", "text"}, EncodingKind{"str_decimal", "text"},
    EncodingKind{"json", "json"},      EncodingKind{"int", "i64"},
    EncodingKind{"int8", "i8"},        EncodingKind{"int16", "i16"},
    EncodingKind{"int32", "i32"},      EncodingKind{"int64", "i64"},
    EncodingKind{"uint8", "u8"},       EncodingKind{"uint16", "u16"},
    EncodingKind{"uint32", "u32"},     EncodingKind{"uint64", "u64"},
    EncodingKind{"float16", "f16"},    EncodingKind{"float32", "f32"},
    EncodingKind{"float64", "f64"},
};

std::string_view type_of_encoding(std::string_view encoding) {
  const auto* found = std::ranges::find(encoding_kinds, encoding, &EncodingKind::encoding);
  return found == encoding_kinds.end() ? "bytes" : found->type;
}

/// The element type of an array's code or name.
std::string_view array_type(std::string_view name) {
  const std::string_view type = type_of_encoding(name);
  need(element_bytes(type) > 0 && name != "int", "an array has the unknown type \"", name, "\"");
  return type;
}

std::string_view array_type(std::uint8_t code) {
  struct TypeCode {
    std::uint8_t code;
    std::string_view type;
  };
  constexpr std::array codes = {TypeCode{8, "u8"},   TypeCode{9, "i8"},   TypeCode{16, "u16"},
                                TypeCode{17, "i16"}, TypeCode{18, "f16"}, TypeCode{32, "u32"},
                                TypeCode{33, "i32"}, TypeCode{34, "f32"}, TypeCode{64, "u64"},
                                TypeCode{65, "i64"}, TypeCode{66, "f64"}};
  const auto* found = std::ranges::find(codes, code, &TypeCode::code);
  need(found != codes.end(), "an array has the unknown type ", int{code});
  return found->type;
}

std::uint64_t whole_number(std::string_view digits) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  need(error == std::errc() && end == digits.data() + digits.size(), "an array has the extent \"",
       digits, "\"");
  return number;
}

/// Takes the first `count` bytes off.
std::span<const std::byte> take_bytes(std::span<const std::byte>& from, std::uint64_t count) {
  need(count <= from.size(), "a sample is too short for its columns");
  const auto taken = from.first(count);
  from = from.subspan(count);
  return taken;
}

/// The shape in front of an array: ndim << 2 | log2 of the bytes of an extent, then the extents.
std::vector<std::uint64_t> take_shape(std::span<const std::byte>& from) {
  const auto head = std::to_integer<unsigned>(take_bytes(from, 1)[0]);
  const std::size_t extent_bytes = std::size_t{1} << (head & 3);
  std::vector<std::uint64_t> shape(head >> 2);
  for (std::uint64_t& extent : shape) {
    const auto bytes = take_bytes(from, extent_bytes);
    std::memcpy(&extent, bytes.data(), bytes.size());
  }
  return shape;
}

/// "ndarray", "ndarray:TYPE" or "ndarray:TYPE:EXTENTS": what the name leaves open stands in front
/// of the values.
Field field_of_array(std::string name, std::string_view encoding,
                     std::span<const std::byte> bytes) {
  encoding.remove_prefix(std::min<std::size_t>(encoding.size(), 8));  // "ndarray:"
  const std::size_t colon = encoding.find(':');
  const std::string_view type = encoding.substr(0, colon);
  Field field{.name = std::move(name), .type = {}, .shape = {}, .bytes = {}};
  field.type = type.empty() ? array_type(std::to_integer<std::uint8_t>(take_bytes(bytes, 1)[0]))
                            : array_type(type);
  if (colon == encoding.npos) {
    field.shape = take_shape(bytes);
  } else {
    for (std::string_view rest = encoding.substr(colon + 1); !rest.empty();) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      field.shape.push_back(whole_number(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  std::uint64_t wanted = element_bytes(field.type);
  for (const std::uint64_t extent : field.shape) {
    need(!__builtin_mul_overflow(wanted, extent, &wanted), "an array has more than 2^64 bytes");
  }
  need(bytes.size() == wanted, "an array has ", bytes.size(), " bytes, and its shape asks for ",
       wanted);
  field.bytes = bytes;
  return field;
}

Field field_of_column(std::string name, std::string_view encoding,
                      std::span<const std::byte> bytes) {
  if (encoding == "ndarray" || encoding.starts_with("ndarray:")) {
    return field_of_array(std::move(name), encoding, bytes);
  }
  const std::string_view type = type_of_encoding(encoding);
  const std::uint64_t each = element_bytes(type);
  need(each == 0 || bytes.size() == each, "a ", encoding, " has ", bytes.size(), " bytes");
  return {.name = std::move(name), .type = std::string(type), .shape = {}, .bytes = bytes};
}

/// Nothing deep: what streaming writes has three levels.
Json parse_mds_json(const std::string& who, const std::string& text) {
  constexpr int deepest_json = 8;
  bool shallow = true;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    shallow = shallow && depth <= deepest_json;
    return shallow;
  };
  const Json json = Json::parse(text, watch, false);
  need(shallow && json.is_object(), who, " holds no JSON object where MDS has one");
  return json;
}

const Json& array_in(const Json& config, const char* key, const std::string& who) {
  const auto found = config.find(key);
  need(found != config.end() && found->is_array(), who, " has no array \"", key, "\"");
  return *found;
}

/// Name, encoding and fixed size (0 for none) of each column, one after another: quick to read for
/// every sample.
std::string context_of(const std::string& path, const Json& config) {
  const Json& names = array_in(config, "column_names", path);
  const Json& encodings = array_in(config, "column_encodings", path);
  const Json& sizes = array_in(config, "column_sizes", path);
  need(names.size() == encodings.size() && names.size() == sizes.size(), path, " has ",
       names.size(), " columns, ", encodings.size(), " encodings and ", sizes.size(), " sizes");
  std::string context;
  for (std::size_t column = 0; column < names.size(); ++column) {
    need(names[column].is_string() && encodings[column].is_string() &&
             (sizes[column].is_null() || sizes[column].is_number_unsigned()),
         path, " describes its column ", column, " by ", names[column].type_name(), ", ",
         encodings[column].type_name(), " and ", sizes[column].type_name());
    const auto encoding = encodings[column].get<std::string>();
    need(encoding != "pkl", path, ": the column ", names[column].dump(),
         " holds Python's pickles, which may run any code when they are read: write it again with "
         "another encoding");
    const std::uint64_t size = sizes[column].is_null() ? 0 : sizes[column].get<std::uint64_t>();
    need(size <= UINT32_MAX, path, ": the column ", names[column].dump(), " has ", size, " bytes");
    append_text(context, names[column].get<std::string>());
    append_text(context, encoding);
    append_text(context, {reinterpret_cast<const char*>(&size), sizeof size});
  }
  return context;
}

/// Of the file's begin: the number of samples, and where the first of them begins.
struct ShardHead {
  std::uint64_t samples = 0, config = 0, data = 0;
};

/// nullopt for a file that does not look like a shard.
std::optional<ShardHead> shard_head(IndexedFile& file) {
  if (file.bytes() < 8) {
    return std::nullopt;
  }
  ShardHead head{.samples = read_number<std::uint32_t>(file, 0)};
  head.config = 4 + 4 * (head.samples + 1);
  if (head.config >= file.bytes()) {
    return std::nullopt;
  }
  head.data = read_number<std::uint32_t>(file, 4);
  const bool plausible = head.data > head.config && head.data <= file.bytes() &&
                         head.data - head.config <= longest_config &&
                         read_number<char>(file, head.config) == '{';
  return plausible ? std::optional(head) : std::nullopt;
}

bool recognises_mds(IndexedFile& file) {
  const auto head = shard_head(file);
  return head && read_number<char>(file, head->data - 1) == '}';
}

FileIndex index_mds(IndexedFile& file, const FormatOptions&) {
  refuse_packed(file);
  for (const std::string_view ending : {".br", ".snappy"}) {  // which have no magic
    need(!file.path().ends_with(ending), file.path(),
         " is compressed, and records of compressed files cannot be read alone: write the shards "
         "again without compression");
  }
  FileIndex index;
  if (file.bytes() == 0) {
    return index;
  }
  const auto head = shard_head(file);
  need(head.has_value(), file.path(), " of ", file.bytes(),
       " bytes does not begin with offsets and columns as MDS shards do: it is cut short, or none");
  std::string config(head->data - head->config, '\0');
  file.read(head->config, std::as_writable_bytes(std::span(config)));
  index.context = context_of(file.path(), parse_mds_json(file.path(), config));
  index.spans.reserve(head->samples);
  std::vector<std::uint32_t> offsets;
  std::uint64_t begin = head->data;
  for (std::uint64_t from = 0; from < head->samples; from += offsets.size()) {
    offsets.resize(std::min(offsets_at_once, head->samples - from));
    file.read(4 + 4 * (from + 1), std::as_writable_bytes(std::span(offsets)));
    for (const std::uint32_t end : offsets) {
      need(end >= begin && end <= file.bytes(), file.path(), ": sample ", index.spans.size(),
           " goes from byte ", begin, " to ", end, " of a file of ", file.bytes(),
           ": it is cut short or damaged");
      index.spans.push_back({.offset = begin, .bytes = end - begin});
      begin = end;
    }
  }
  need(begin == file.bytes(), file.path(), " has ", file.bytes(), " bytes, and its samples end at ",
       begin, ": it is too long");
  return index;
}

std::vector<Field> mds_fields(std::string_view context, std::uint64_t,
                              std::span<const std::byte> bytes) {
  struct Column {
    std::string_view name, encoding;
    std::uint64_t bytes;
  };
  std::vector<Column> columns;
  for (std::string_view rest = context; !rest.empty();) {
    Column column{.name = take_text(rest), .encoding = take_text(rest), .bytes = 0};
    const std::string_view size = take_text(rest);
    need(size.size() == sizeof column.bytes, "what the index says of columns is damaged");
    std::memcpy(&column.bytes, size.data(), sizeof column.bytes);
    if (column.bytes == 0) {
      column.bytes = number_at<std::uint32_t>(take_bytes(bytes, 4), 0);
    }
    columns.push_back(column);
  }
  std::vector<Field> fields;
  for (const Column& column : columns) {
    fields.push_back(field_of_column(std::string(column.name), column.encoding,
                                     take_bytes(bytes, column.bytes)));
  }
  need(bytes.empty(), "a sample has ", bytes.size(), " bytes more than its columns");
  return fields;
}

/// An entry of index.json. Shards that are only there compressed are refused here, by name.
CatalogueEntry catalogue_entry(const std::string& path, const Json& shard) {
  const Json none = nullptr;
  const auto value = [&](const Json& object, const char* key) -> const Json& {
    return object.is_object() && object.contains(key) ? object[key] : none;
  };
  const Json &raw = value(shard, "raw_data"), &name = value(raw, "basename"),
             &bytes = value(raw, "bytes"), &samples = value(shard, "samples");
  need(name.is_string() && bytes.is_number_unsigned() && samples.is_number_unsigned(), path,
       " lists a shard without its basename, bytes or samples");
  need(value(shard, "format") == "mds" && value(shard, "version") == 2, path, " lists ",
       name.dump(), " as format ", value(shard, "format").dump(), ", version ",
       value(shard, "version").dump(), "; known is mds, version 2");
  need(value(shard, "zip_data").is_null(), path, " lists ", name.dump(), " as compressed (",
       value(shard, "compression").dump(),
       "), and records of compressed files cannot be read alone: write the shards again without "
       "compression");
  return {.name = name.get<std::string>(),
          .bytes = bytes.get<std::uint64_t>(),
          .records = samples.get<std::uint64_t>()};
}

std::vector<CatalogueEntry> mds_catalogue(IndexedFile& file) {
  need(file.bytes() <= longest_catalogue, file.path(), " has ", file.bytes(),
       " bytes; such files have at most ", longest_catalogue);
  const Json json = parse_mds_json(file.path(), head_of(file, file.bytes()));
  std::vector<CatalogueEntry> entries;
  for (const Json& shard : array_in(json, "shards", file.path())) {
    entries.push_back(catalogue_entry(file.path(), shard));
  }
  return entries;
}

}  // namespace

extern const Format mds_format;
const Format mds_format = {
    .name = "mds",
    .about = "MosaicML's MDS shards: a record is a sample, its fields are the columns",
    .endings = mds_endings,
    .recognises = recognises_mds,
    .index = index_mds,
    .fields = mds_fields,
    .catalogue_name = "index.json",
    .catalogue = mds_catalogue,
};

}  // namespace sprat::io
