// TFRecord files: a record is u64 length, its checksum, the payload, and that's checksum. Fields
// are the payload, "bytes", and what is in it if it is a tf.train.Example.
//
// Checksums are CRC-32C, rotated and shifted so that they may lie in what is summed again. An
// Example is a protocol buffer: features 1 { feature 1 { key 1, value 2 { bytes_list 1 | float_list
// 2 | int64_list 3 { value 1 } } } }. Sources: tensorflow/core/lib/io/record_writer.h and
// tensorflow/core/example/feature.proto.
#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

constexpr std::array<std::string_view, 2> tfrecord_endings = {".tfrecord", ".tfrecords"};
constexpr std::uint64_t payload_offset = 12, frame_bytes = 16;

std::uint32_t masked_crc(std::span<const std::byte> bytes) {
  // The library picks the processor's own instruction where there is one. It neither begins nor
  // ends with the complement, and takes an int of bytes.
  constexpr std::size_t at_once = std::size_t{1} << 30;
  std::uint32_t sum = ~std::uint32_t{0};
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), at_once));
    auto* const begin = const_cast<std::byte*>(piece.data());  // it only reads
    sum = crc32_iscsi(reinterpret_cast<unsigned char*>(begin), static_cast<int>(piece.size()), sum);
    bytes = bytes.subspan(piece.size());
  }
  sum = ~sum;
  return (sum >> 15 | sum << 17) + 0xa282ead8;
}

/// The payload's length, if its checksum is right. `head` has 12 bytes.
std::optional<std::uint64_t> payload_bytes(std::span<const std::byte> head) {
  const bool right = number_at<std::uint32_t>(head, 8) == masked_crc(head.first(8));
  return right ? std::optional(number_at<std::uint64_t>(head, 0)) : std::nullopt;
}

bool recognises_tfrecord(IndexedFile& file) {
  const std::string head = head_of(file, payload_offset);
  return head.size() == payload_offset && payload_bytes(bytes_in(head)).has_value();
}

FileIndex index_tfrecord(IndexedFile& file, const FormatOptions&) {
  refuse_packed(file);
  FileIndex index;
  std::array<std::byte, payload_offset> head{};
  for (std::uint64_t at = 0; at < file.bytes();) {
    const std::uint64_t rest = file.bytes() - at;
    need(rest >= frame_bytes, file.path(), ": at byte ", at, " a record is cut short");
    file.read(at, head);
    const auto bytes = payload_bytes(head);
    need(bytes.has_value(), file.path(), ": at byte ", at,
         " there is no record: the checksum of its length differs");
    need(*bytes <= rest - frame_bytes, file.path(), ": at byte ", at, " a record of ", *bytes,
         " bytes is cut short by the end of the file at byte ", file.bytes());
    index.spans.push_back({.offset = at, .bytes = frame_bytes + *bytes});
    at += frame_bytes + *bytes;
  }
  return index;
}

// Protocol buffers: a message is a row of tags, (field << 3 | kind), each with its value. The
// parsers below return false for bytes that are no Example; such payloads are no error.

class ProtoReader {
 public:
  explicit ProtoReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }

  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(bytes_.front());
      bytes_ = bytes_.subspan(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        return true;
      }
    }
    return false;
  }
  bool fixed(std::size_t bytes, std::span<const std::byte>& value) {
    if (bytes_.size() < bytes) {
      return false;
    }
    value = bytes_.first(bytes);
    bytes_ = bytes_.subspan(bytes);
    return true;
  }
  bool block(std::span<const std::byte>& value) {
    std::uint64_t bytes = 0;
    return varint(bytes) && bytes <= bytes_.size() && fixed(bytes, value);
  }
  /// The next tag is `field` of kind 2, a block, which is all that this message may hold.
  bool only_block(std::uint64_t field, std::span<const std::byte>& value) {
    std::uint64_t tag = 0;
    return varint(tag) && tag == (field << 3 | 2) && block(value);
  }

 private:
  std::span<const std::byte> bytes_;
};

bool read_bytes_list(std::span<const std::byte> list, const std::string& name,
                     std::vector<Field>& fields) {
  ProtoReader reader(list);
  std::span<const std::byte> value;
  while (!reader.done()) {
    if (!reader.only_block(1, value)) {
      return false;
    }
    fields.push_back({.name = name, .type = "bytes", .shape = {}, .bytes = value});
  }
  return true;
}

/// Numbers are packed in a block, or stand one by one; a list may mix both. `take` reads one.
template <class Take>
bool read_numbers(std::span<const std::byte> list, std::uint64_t kind, const Take& take) {
  ProtoReader reader(list);
  while (!reader.done()) {
    std::uint64_t tag = 0;
    if (!reader.varint(tag) || (tag != (1 << 3 | kind) && tag != (1 << 3 | 2))) {
      return false;
    }
    if (tag == (1 << 3 | kind)) {
      if (!take(reader)) {
        return false;
      }
      continue;
    }
    std::span<const std::byte> packed;
    if (!reader.block(packed)) {
      return false;
    }
    for (ProtoReader inside(packed); !inside.done();) {
      if (!take(inside)) {
        return false;
      }
    }
  }
  return true;
}

void add_numbers(std::vector<Field>& fields, const std::string& name, std::string_view type,
                 std::string values) {
  const auto decoded = std::make_shared<const std::string>(std::move(values));
  fields.push_back({.name = name,
                    .type = std::string(type),
                    .shape = {decoded->size() / element_bytes(type)},
                    .bytes = bytes_in(*decoded),
                    .owner = decoded});
}

bool read_float_list(std::span<const std::byte> list, const std::string& name,
                     std::vector<Field>& fields) {
  constexpr std::uint64_t four_bytes = 5;
  std::string values;
  const bool right = read_numbers(list, four_bytes, [&](ProtoReader& reader) {
    std::span<const std::byte> value;
    const bool taken = reader.fixed(sizeof(float), value);
    values.append(text_in(value));
    return taken;
  });
  if (right) {
    add_numbers(fields, name, "f32", std::move(values));
  }
  return right;
}

bool read_int64_list(std::span<const std::byte> list, const std::string& name,
                     std::vector<Field>& fields) {
  std::string values;
  const bool right = read_numbers(list, 0, [&](ProtoReader& reader) {
    std::uint64_t value = 0;
    const bool taken = reader.varint(value);
    values.append(reinterpret_cast<const char*>(&value), sizeof value);
    return taken;
  });
  if (right) {
    add_numbers(fields, name, "i64", std::move(values));
  }
  return right;
}

/// One entry of the map of features.
bool read_feature(std::span<const std::byte> entry, std::vector<Field>& fields) {
  ProtoReader reader(entry);
  std::span<const std::byte> key, feature, list;
  if (!reader.only_block(1, key) || !reader.only_block(2, feature) || !reader.done()) {
    return false;
  }
  const std::string name(text_in(key));
  ProtoReader inside(feature);
  std::uint64_t tag = 0;
  if (inside.done()) {
    return true;  // a feature without a list: it is named, and has no value
  }
  if (!inside.varint(tag) || !inside.block(list) || !inside.done()) {
    return false;
  }
  switch (tag) {
    case 1 << 3 | 2:
      return read_bytes_list(list, name, fields);
    case 2 << 3 | 2:
      return read_float_list(list, name, fields);
    case 3 << 3 | 2:
      return read_int64_list(list, name, fields);
    default:
      return false;
  }
}

/// The features of a payload that is an Example from the first byte to the last; else none.
std::vector<Field> features_of(std::span<const std::byte> payload) {
  ProtoReader example(payload);
  std::span<const std::byte> features, entry;
  std::vector<Field> fields;
  if (!example.only_block(1, features) || !example.done()) {
    return {};
  }
  ProtoReader reader(features);
  while (!reader.done()) {
    if (!reader.only_block(1, entry) || !read_feature(entry, fields)) {
      return {};
    }
  }
  return fields;
}

std::vector<Field> tfrecord_fields(std::string_view, std::uint64_t,
                                   std::span<const std::byte> bytes) {
  need(bytes.size() >= frame_bytes, "a record of ", bytes.size(), " bytes is too short");
  const auto length = payload_bytes(bytes.first(payload_offset));
  need(length.has_value(), "a record is damaged: the checksum of its length differs");
  need(*length == bytes.size() - frame_bytes, "a record of ", bytes.size(),
       " bytes says that its payload has ", *length);
  const auto payload = bytes.subspan(payload_offset, *length);
  need(number_at<std::uint32_t>(bytes, payload_offset + *length) == masked_crc(payload),
       "a record of ", *length, " bytes is damaged: the checksum of its payload differs");
  std::vector<Field> fields = {{.name = "bytes", .type = "bytes", .shape = {}, .bytes = payload}};
  std::ranges::move(features_of(payload), std::back_inserter(fields));
  return fields;
}

}  // namespace

extern const Format tfrecord_format;
const Format tfrecord_format = {
    .name = "tfrecord",
    .about = "TFRecord files, with the features of each tf.train.Example",
    .endings = tfrecord_endings,
    .recognises = recognises_tfrecord,
    .index = index_tfrecord,
    .fields = tfrecord_fields,
};

}  // namespace sprat::io
