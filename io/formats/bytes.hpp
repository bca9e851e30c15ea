// What parsers of binary formats share: numbers of least byte first, the begin of a file, and bytes
// in memory that are read like a file.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/check.hpp"
#include "io/formats/format.hpp"

namespace sprat::io {

static_assert(std::endian::native == std::endian::little, "files are read as they lie on the disk");

/// `offset` + sizeof(Number) <= bytes.size().
template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

template <class Number>
Number read_number(IndexedFile& file, std::uint64_t offset) {
  Number number;
  file.read(offset, std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

inline std::string_view text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// The first bytes of a file, `most` or all there are.
inline std::string head_of(IndexedFile& file, std::size_t most) {
  std::string head(std::min<std::uint64_t>(most, file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  return head;
}

/// The name of a path's last part.
inline std::string_view name_in(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

/// The program that unpacks a file that begins so; empty if it is not packed.
inline std::string_view unpacker_of(std::string_view head) {
  using namespace std::string_view_literals;
  struct Packing {
    std::string_view magic, program;
  };
  constexpr Packing packings[] = {{"\x1f\x8b"sv, "gunzip"},
                                  {"\x28\xb5\x2f\xfd"sv, "unzstd"},
                                  {"\xfd\x37\x7a\x58\x5a\x00"sv, "unxz"},
                                  {"BZh"sv, "bunzip2"}};
  for (const Packing& packing : packings) {
    if (head.starts_with(packing.magic)) {
      return packing.program;
    }
  }
  return {};
}

/// Records of a packed file have no place of their own, so it is refused with what unpacks it.
inline void refuse_packed(IndexedFile& file) {
  const std::string_view program = unpacker_of(head_of(file, 8));
  need(program.empty(), file.path(), " is compressed, and records of compressed files cannot be ",
       "read alone: ", program, " it first");
}

/// Bytes in memory, read like a file that has no other beside it. They outlive it.
class BytesFile final : public IndexedFile {
 public:
  BytesFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}
  const std::string& path() const override { return path_; }
  std::uint64_t bytes() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) override {
    need(offset <= bytes_.size() && into.size() <= bytes_.size() - offset, path_, " ends at byte ",
         bytes_.size(), ", before what is to be read from it");
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
  }
  std::unique_ptr<IndexedFile> beside(const std::string&) override { return nullptr; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

/// Texts in a row, each after its length: contexts are made of them.
inline void append_text(std::string& to, std::string_view text) {
  const auto bytes = static_cast<std::uint32_t>(text.size());
  to.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  to.append(text);
}
/// The next of them; moves `from` on. Throws Error{unavailable} if there is none.
inline std::string_view take_text(std::string_view& from) {
  std::uint32_t bytes = 0;
  need(from.size() >= sizeof bytes, "what the index says of the file is cut short");
  std::memcpy(&bytes, from.data(), sizeof bytes);
  from.remove_prefix(sizeof bytes);
  need(bytes <= from.size(), "what the index says of the file is cut short");
  const std::string_view text = from.substr(0, bytes);
  from.remove_prefix(bytes);
  return text;
}

/// Bytes of an element type that files of tokens and arrays have; 0 for a name that is none.
inline std::uint64_t element_bytes(std::string_view type) {
  struct Element {
    std::string_view name;
    std::uint64_t bytes;
  };
  constexpr Element elements[] = {{"i8", 1},  {"u8", 1},  {"i16", 2}, {"u16", 2},
                                  {"f16", 2}, {"i32", 4}, {"u32", 4}, {"f32", 4},
                                  {"i64", 8}, {"u64", 8}, {"f64", 8}};
  for (const Element& element : elements) {
    if (element.name == type) {
      return element.bytes;
    }
  }
  return 0;
}

/// A record of elements of one type, as one field.
inline std::vector<Field> field_of_elements(std::string_view name, std::string_view type,
                                            std::span<const std::byte> bytes) {
  const std::uint64_t each = element_bytes(type);
  need(each > 0, "there is no element type \"", type, "\"");
  need(bytes.size() % each == 0, "a record of ", bytes.size(), " bytes is no whole number of ",
       type);
  return {{.name = std::string(name),
           .type = std::string(type),
           .shape = {bytes.size() / each},
           .bytes = bytes}};
}

}  // namespace sprat::io
