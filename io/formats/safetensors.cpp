#include "io/formats/safetensors.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

using Json = nlohmann::json;
constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t data_alignment = 64;
constexpr int deepest = 8;  // the format itself needs 3: header, tensor, array

struct DTypeBits {
  const char* name;
  std::uint64_t bits;
};
constexpr std::array dtypes = {
    DTypeBits{"BOOL", 8},        DTypeBits{"F4", 4},          DTypeBits{"F6_E2M3", 6},
    DTypeBits{"F6_E3M2", 6},     DTypeBits{"U8", 8},          DTypeBits{"I8", 8},
    DTypeBits{"F8_E5M2", 8},     DTypeBits{"F8_E4M3", 8},     DTypeBits{"F8_E8M0", 8},
    DTypeBits{"F8_E5M2FNUZ", 8}, DTypeBits{"F8_E4M3FNUZ", 8}, DTypeBits{"I16", 16},
    DTypeBits{"U16", 16},        DTypeBits{"F16", 16},        DTypeBits{"BF16", 16},
    DTypeBits{"I32", 32},        DTypeBits{"U32", 32},        DTypeBits{"F32", 32},
    DTypeBits{"C64", 64},        DTypeBits{"F64", 64},        DTypeBits{"I64", 64},
    DTypeBits{"U64", 64},
};

/// Names come from foreign files: JSON's quoting shows any of them on one line.
std::string quoted(const std::string& name) { return Json(name).dump(); }

Json parse_json(const std::string& file, std::string_view text) {
  need(text.starts_with('{'), file, ": the header does not begin with '{'");
  // The parser keeps the last of two equal keys without a word. Readers that keep the first would
  // then see other tensors, so a second one is refused. By depth, of the objects that are open.
  JsonKeys keys;
  const auto note = [&](int depth, Json::parse_event_t event, Json& value) {
    need(depth <= deepest, file, ": the header is nested too deeply");
    const auto again = keys.repeated(event, value);
    need(!again, file, ": the key ", quoted(again.value_or("")), " is given twice in the header");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), note);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::unavailable,
                sprat::text(file, ": the header is no JSON: ", reason_of(error).substr(0, 200)));
  }
}

std::vector<std::uint64_t> unsigned_array(const Json& entry, const char* key,
                                          const std::string& who) {
  const auto found = entry.find(key);
  need(found != entry.end() && found->is_array(), who, " has no array \"", key, "\"");
  std::vector<std::uint64_t> values;
  for (const Json& value : *found) {
    need(value.is_number_unsigned(), who, ": \"", key, "\" holds ", value.dump().substr(0, 40),
         ", which is no whole number from 0 on");
    values.push_back(value.get<std::uint64_t>());
  }
  return values;
}

/// Bytes that shape and dtype ask for.
std::uint64_t expected_bytes(const SafeTensor& tensor, const std::string& who) {
  const auto bits = safetensors_bits(tensor.dtype);
  need(bits.has_value(), who, " has the unknown dtype ", quoted(tensor.dtype).substr(0, 40));
  std::uint64_t total = *bits;
  for (const std::uint64_t extent : tensor.shape) {
    // A shape may lie: a product that wraps would look like a small tensor.
    need(!__builtin_mul_overflow(total, extent, &total), who,
         " has a shape of more than 2^64 bits");
  }
  need(total % 8 == 0, who, " ends within a byte");
  return total / 8;
}

SafeTensor tensor_of(const std::string& file, const std::string& name, const Json& entry) {
  const std::string who = file + ": tensor " + quoted(name);
  need(entry.is_object(), who, " is described by ", entry.type_name(), ", not by an object");
  const auto dtype = entry.find("dtype");
  need(dtype != entry.end() && dtype->is_string(), who, " has no \"dtype\"");
  SafeTensor tensor{.name = name,
                    .dtype = dtype->get<std::string>(),
                    .shape = unsigned_array(entry, "shape", who)};
  const auto offsets = unsigned_array(entry, "data_offsets", who);
  need(offsets.size() == 2 && offsets[0] <= offsets[1], who,
       " has no [begin, end] in data_offsets");
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  const std::uint64_t bytes = expected_bytes(tensor, who);
  need(tensor.end - tensor.begin == bytes, who, " has ", tensor.end - tensor.begin,
       " bytes of data where its shape and dtype ask for ", bytes);
  return tensor;
}

std::map<std::string, std::string> metadata_of(const std::string& file, const Json& entry) {
  need(entry.is_object(), file, ": ", metadata_key, " is no object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : entry.items()) {
    need(value.is_string(), file, ": ", metadata_key, " holds ", quoted(key),
         ", which is no string");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

std::optional<std::uint64_t> safetensors_bits(std::string_view dtype) {
  const auto* found = std::ranges::find(dtypes, dtype, &DTypeBits::name);
  return found == dtypes.end() ? std::nullopt : std::optional(found->bits);
}

std::uint64_t safetensors_json_bytes(const std::string& file, std::span<const std::byte> first,
                                     std::uint64_t file_bytes) {
  need(first.size() >= safetensors_length_bytes && file_bytes >= safetensors_length_bytes, file,
       ": a file of ", file_bytes, " bytes is too short to be safetensors");
  std::uint64_t bytes = 0;
  for (std::size_t at = safetensors_length_bytes; at-- > 0;) {
    bytes = bytes << 8 | std::to_integer<std::uint64_t>(first[at]);
  }
  need(bytes <= safetensors_longest_header, file, ": a header of ", bytes,
       " bytes is longer than safetensors allows (", safetensors_longest_header, ")");
  need(bytes <= file_bytes - safetensors_length_bytes, file, ": a header of ", bytes,
       " bytes does not fit into a file of ", file_bytes);
  return bytes;
}

SafetensorsHeader parse_safetensors(const std::string& file, std::string_view json,
                                    std::uint64_t file_bytes) {
  const Json root = parse_json(file, json);
  SafetensorsHeader header;
  header.data_offset = safetensors_length_bytes + json.size();
  for (const auto& [name, entry] : root.items()) {
    if (name == metadata_key) {
      header.metadata = metadata_of(file, entry);
    } else {
      header.tensors.push_back(tensor_of(file, name, entry));
    }
  }
  std::ranges::sort(header.tensors, {},
                    [](const SafeTensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  std::uint64_t end = 0;
  for (const SafeTensor& tensor : header.tensors) {
    // Tensors must cover the data without holes or overlaps, as the format demands.
    need(tensor.begin == end, file, ": tensor ", quoted(tensor.name), " begins at byte ",
         tensor.begin, " of the data, ", tensor.begin < end ? "inside" : "with a hole after",
         " what ends at byte ", end);
    end = tensor.end;
  }
  const std::uint64_t data_bytes = file_bytes - std::min(file_bytes, header.data_offset);
  need(data_bytes == end, file, ": holds ", data_bytes, " bytes of data, and its header describes ",
       end, "; the file is ", data_bytes < end ? "cut short" : "too long");
  return header;
}

std::string write_safetensors_header(const std::vector<SafeTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names = {metadata_key};
  std::string json = "{";
  if (!metadata.empty()) {
    json += sprat::text('"', metadata_key, "\":", Json(metadata).dump(), ",\n");
  }
  std::uint64_t end = 0;
  for (const SafeTensor& tensor : tensors) {
    require(names.insert(tensor.name).second, "two tensors of one file cannot be named ",
            quoted(tensor.name));
    require(tensor.begin == end && tensor.end - end == expected_bytes(tensor, tensor.name),
            "tensor ", quoted(tensor.name), " does not follow the one before it");
    const Json entry = {{"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"data_offsets", {tensor.begin, tensor.end}}};
    json += sprat::text(quoted(tensor.name), ":", entry.dump(), ",\n");
    end = tensor.end;
  }
  if (json.size() > 1) {
    json.resize(json.size() - 2);  // the last comma and line end
  }
  json += "}";
  const std::size_t used = safetensors_length_bytes + json.size();
  // The format lets the JSON end in spaces. They move the data to a multiple of 64 bytes, so that a
  // file that is mapped has its tensors aligned.
  json.append((data_alignment - used % data_alignment) % data_alignment, ' ');
  require(json.size() <= safetensors_longest_header, "a header of ", json.size(),
          " bytes is longer than safetensors allows: name fewer tensors in one file");
  std::string bytes;
  for (std::size_t at = 0; at < safetensors_length_bytes; ++at) {
    bytes.push_back(static_cast<char>(json.size() >> (8 * at) & 0xff));
  }
  return bytes + json;
}

namespace {

constexpr std::array<std::string_view, 1> safetensors_endings = {".safetensors"};

/// As sprat names element types, where it has them; else the format's name in small letters, as
/// "f8_e8m0".
std::string element_type(std::string_view dtype) {
  struct Renamed {
    std::string_view dtype, type;
  };
  constexpr std::array renamed = {Renamed{"BOOL", "boolean"}, Renamed{"F8_E4M3", "f8e4m3"},
                                  Renamed{"F8_E5M2", "f8e5m2"}};
  const auto* found = std::ranges::find(renamed, dtype, &Renamed::dtype);
  std::string type(found == renamed.end() ? dtype : found->type);
  std::ranges::transform(type, type.begin(), [](unsigned char letter) {
    return static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
  });
  return type;
}

std::string header_text(IndexedFile& file) {
  const std::string head = head_of(file, safetensors_length_bytes);
  std::string json(safetensors_json_bytes(file.path(), bytes_in(head), file.bytes()), '\0');
  file.read(safetensors_length_bytes, std::as_writable_bytes(std::span(json)));
  return json;
}

bool recognises_safetensors(IndexedFile& file) {
  if (file.bytes() <= safetensors_length_bytes) {
    return false;
  }
  const auto json_bytes = read_number<std::uint64_t>(file, 0);
  return json_bytes > 0 && json_bytes <= safetensors_longest_header &&
         json_bytes <= file.bytes() - safetensors_length_bytes &&
         read_number<char>(file, safetensors_length_bytes) == '{';
}

/// Where each tensor's description begins, then the descriptions: name, type, extents. So one is
/// found without the others.
std::string context_of_tensors(const std::vector<SafeTensor>& tensors) {
  std::string places, descriptions;
  for (const SafeTensor& tensor : tensors) {
    const std::uint64_t place = tensors.size() * sizeof place + descriptions.size();
    places.append(reinterpret_cast<const char*>(&place), sizeof place);
    append_text(descriptions, tensor.name);
    append_text(descriptions, element_type(tensor.dtype));
    append_text(descriptions, {reinterpret_cast<const char*>(tensor.shape.data()),
                               tensor.shape.size() * sizeof(std::uint64_t)});
  }
  return places + descriptions;
}

/// A record is one tensor. Samples that are rows of several tensors would be several ranges of
/// bytes, and no record.
FileIndex index_safetensors(IndexedFile& file, const FormatOptions&) {
  FileIndex index;
  if (file.bytes() == 0) {
    return index;
  }
  const SafetensorsHeader header = parse_safetensors(file.path(), header_text(file), file.bytes());
  for (const SafeTensor& tensor : header.tensors) {
    index.spans.push_back(
        {.offset = header.data_offset + tensor.begin, .bytes = tensor.end - tensor.begin});
  }
  index.context = context_of_tensors(header.tensors);
  return index;
}

std::vector<Field> tensor_fields(std::string_view context, std::uint64_t record,
                                 std::span<const std::byte> bytes) {
  const auto words = bytes_in(context);
  need(record < words.size() / sizeof(std::uint64_t), "the index does not tell tensor ", record);
  const auto place = number_at<std::uint64_t>(words, record * sizeof(std::uint64_t));
  need(place <= context.size(), "what the index says of tensor ", record, " is damaged");
  std::string_view rest = context.substr(place);
  Field field{.name = std::string(take_text(rest)),
              .type = std::string(take_text(rest)),
              .shape = {},
              .bytes = bytes};
  const std::string_view extents = take_text(rest);
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= extents.size();
       at += sizeof(std::uint64_t)) {
    field.shape.push_back(number_at<std::uint64_t>(bytes_in(extents), at));
  }
  return {field};
}

}  // namespace

extern const Format safetensors_format;
const Format safetensors_format = {
    .name = "safetensors",
    .about = "Files of tensors: a record is one tensor, its field has the tensor's name",
    .endings = safetensors_endings,
    .recognises = recognises_safetensors,
    .index = index_safetensors,
    .fields = tensor_fields,
};

}  // namespace sprat::io
