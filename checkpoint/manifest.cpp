#include "checkpoint/manifest.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "io/checked_file.hpp"

namespace sprat::fsdp {
namespace {

using Json = nlohmann::json;
// 2: a tensor may have boxes that are no whole rows. Where there are none, 1 is written, which
// older versions read.
constexpr int rows_version = 1, boxes_version = 2;
// The end of a manifest: these, sixteen digits between them. The checksum is of all before.
constexpr std::string_view before_checksum = ",\n\"checksum\":\"";
constexpr std::string_view after_checksum = "\"\n}\n";
constexpr std::size_t checksum_digits = 16;

// As text: many readers of JSON take numbers for doubles, which hold 53 bits of the 64.
std::string hexadecimal(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::uint64_t from_hexadecimal(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  need(error == std::errc() && end == text.data() + text.size() && text.size() == checksum_digits,
       "\"", text, "\" is no checksum");
  return value;
}

std::string checksum_of(std::string_view text) {
  return hexadecimal(XXH3_64bits(text.data(), text.size()));
}

Json to_json(const StoredTensor& tensor) {
  Json boxes = Json::array();
  for (const StoredBox& stored : tensor.boxes) {
    const Box& box = stored.box;
    if (box.offset.empty()) {
      boxes.push_back({stored.file, stored.begin, 0, 1});
    } else if (has_whole_rows(box, tensor.shape)) {
      boxes.push_back({stored.file, stored.begin, box.offset[0], box.extent[0]});
    } else {
      boxes.push_back({stored.file, stored.begin, box.offset, box.extent});
    }
  }
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"boxes", std::move(boxes)}};
}

Json to_json(const StoredFile& file) {
  Json blocks = Json::array();
  for (const std::uint64_t checksum : file.record.blocks) {
    blocks.push_back(hexadecimal(checksum));
  }
  return {{"name", file.name}, {"bytes", file.record.bytes}, {"xxh3", std::move(blocks)}};
}

/// From its offsets and extents, or from its first row and how many there are.
Box box_from(const StoredTensor& tensor, const Json& offset, const Json& extent) {
  if (offset.is_array()) {
    return {.offset = whole_numbers<std::int64_t>(offset),
            .extent = whole_numbers<std::int64_t>(extent)};
  }
  Box box{.offset = std::vector<std::int64_t>(tensor.shape.size(), 0), .extent = tensor.shape};
  const auto first_row = whole_number<std::int64_t>(offset),
             rows = whole_number<std::int64_t>(extent);
  if (box.offset.empty()) {
    need(first_row == 0 && rows == 1, "tensor \"", tensor.name, "\" is one element, and has rows");
    return box;
  }
  box.offset[0] = first_row;
  box.extent[0] = rows;
  return box;
}

StoredTensor tensor_from(const std::string& name, const Json& json) {
  StoredTensor tensor{.name = name,
                      .dtype = json.at("dtype").get<std::string>(),
                      .shape = whole_numbers<std::int64_t>(json.at("shape")),
                      .boxes = {}};
  for (const Json& box : json.at("boxes")) {
    need(box.is_array() && box.size() == 4, "tensor \"", name, "\" has a box of ", box.size(),
         " members, not 4");
    tensor.boxes.push_back({.file = whole_number<std::size_t>(box.at(0)),
                            .begin = whole_number<std::uint64_t>(box.at(1)),
                            .box = box_from(tensor, box.at(2), box.at(3))});
  }
  return tensor;
}

StoredFile file_from(const Json& json) {
  StoredFile file{.name = json.at("name").get<std::string>(),
                  .record = {.bytes = whole_number<std::uint64_t>(json.at("bytes")), .blocks = {}}};
  // The name is appended to the folder's path: it must not lead out of the folder.
  need(!file.name.empty() && file.name.find('/') == std::string::npos && file.name[0] != '.', "\"",
       file.name, "\" names no file of the folder");
  for (const Json& checksum : json.at("xxh3")) {
    file.record.blocks.push_back(from_hexadecimal(checksum.get<std::string>()));
  }
  const std::uint64_t blocks = file.record.bytes / io::checked_block_bytes +
                               (file.record.bytes % io::checked_block_bytes != 0);
  need(file.record.blocks.size() == blocks, file.name, " has ", file.record.blocks.size(),
       " checksums for ", blocks, " blocks");
  return file;
}

Manifest from_json(const Json& json) {
  const int format = whole_number<int>(json.at("format"));
  need(format == rows_version || format == boxes_version, "its format is ", format,
       ", and this version reads ", rows_version, " and ", boxes_version,
       "; use the version of sprat that wrote it");
  Manifest manifest{.step = whole_number<std::int64_t>(json.at("step")),
                    .samples = whole_number<std::int64_t>(json.at("samples")),
                    .counters = json.at("counters").get<std::map<std::string, double>>(),
                    .notes = json.at("notes").get<std::map<std::string, std::string>>(),
                    .config = json.at("config").get<std::map<std::string, std::string>>(),
                    .contents = {}};
  for (const auto& [name, tensor] : json.at("tensors").items()) {
    manifest.contents.tensors.push_back(tensor_from(name, tensor));
  }
  for (const Json& file : json.at("files")) {
    manifest.contents.files.push_back(file_from(file));
  }
  return manifest;
}

int version_of(const Contents& contents) {
  for (const StoredTensor& tensor : contents.tensors) {
    for (const StoredBox& stored : tensor.boxes) {
      if (!has_whole_rows(stored.box, tensor.shape)) {
        return boxes_version;
      }
    }
  }
  return rows_version;
}

/// The text that the checksum is of; throws unless it is what was written.
std::string_view checked(std::string_view text) {
  const std::size_t tail = before_checksum.size() + checksum_digits + after_checksum.size();
  const std::string_view body = text.substr(0, text.size() - std::min(text.size(), tail));
  const std::string expected =
      std::string(before_checksum) + checksum_of(body) + std::string(after_checksum);
  need(text.substr(body.size()) == expected, "it is damaged: its checksum is not that of its text");
  return body;
}

/// One member a line, so that people can read it.
void add_lines(std::string& out, const char* key, const std::vector<std::string>& lines, char open,
               char close) {
  out += fmt::format(",\n\"{}\":{}", key, open);
  const char* separator = "\n";
  for (const std::string& line : lines) {
    out += separator + line;
    separator = ",\n";
  }
  out += fmt::format("\n{}", close);
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  for (const auto& [name, value] : manifest.counters) {
    // JSON has no infinities: the counter would be written as null, and the checkpoint could not be
    // read.
    require(std::isfinite(value), "counter \"", name, "\" is ", value,
            ", which a checkpoint cannot hold");
  }
  std::string out = fmt::format(
      "{{\n\"format\":{},\n\"step\":{},\n\"samples\":{},\n\"counters\":{},\n\"notes\":{},\n"
      "\"config\":{}",
      version_of(manifest.contents), manifest.step, manifest.samples,
      Json(manifest.counters).dump(), Json(manifest.notes).dump(), Json(manifest.config).dump());
  std::vector<std::string> lines;
  for (const StoredTensor& tensor : manifest.contents.tensors) {
    lines.push_back(Json(tensor.name).dump() + ":" + to_json(tensor).dump());
  }
  add_lines(out, "tensors", lines, '{', '}');
  lines.clear();
  for (const StoredFile& file : manifest.contents.files) {
    lines.push_back(to_json(file).dump());
  }
  add_lines(out, "files", lines, '[', ']');
  const std::string checksum = checksum_of(out);
  return out.append(before_checksum).append(checksum).append(after_checksum);
}

Manifest parse_manifest(const std::string& path, std::string_view text) {
  try {
    // First of all: damaged text may still be JSON, of other numbers.
    checked(text);
    const Json json = Json::parse(text.begin(), text.end(), [](int depth, auto, auto&) {
      need(depth < 16, "it is nested too deeply");
      return true;
    });
    Manifest manifest = from_json(json);
    check_contents(path, manifest.contents);
    return manifest;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::unavailable, sprat::text(path, ": ", reason_of(error)));
  } catch (const Error& error) {
    const std::string what = error.what();
    throw Error(error.code(), what.starts_with(path) ? what : path + ": " + what);
  }
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + manifest_name;
  Manifest manifest = parse_manifest(path, io::read_whole(path, longest_manifest));
  manifest.contents.folder = folder;
  return manifest;
}

}  // namespace sprat::fsdp
