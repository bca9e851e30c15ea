// Writes lustre.lov as a client of Lustre hands it out, in either order of bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::io {

inline std::vector<std::byte> bytes_of_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ' || c == '\n') {
      continue;
    }
    digits += c;
    if (digits.size() == 2) {
      bytes.push_back(static_cast<std::byte>(std::stoi(digits, nullptr, 16)));
      digits.clear();
    }
  }
  return bytes;
}

class LovBytes {
 public:
  explicit LovBytes(bool big_endian = false) : big_endian_(big_endian) {}

  LovBytes& u8(std::uint8_t value) { return number(value, 1); }
  LovBytes& u16(std::uint16_t value) { return number(value, 2); }
  LovBytes& u32(std::uint32_t value) { return number(value, 4); }
  LovBytes& u64(std::uint64_t value) { return number(value, 8); }
  LovBytes& raw(const std::vector<std::byte>& more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    return *this;
  }
  LovBytes& pool(std::string name) {
    name.resize(16, '\0');
    for (const char c : name) {
      u8(static_cast<std::uint8_t>(c));
    }
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  LovBytes& number(std::uint64_t value, std::size_t width) {
    for (std::size_t at = 0; at < width; ++at) {
      const std::size_t shift = 8 * (big_endian_ ? width - 1 - at : at);
      bytes_.push_back(static_cast<std::byte>(value >> shift));
    }
    return *this;
  }

  bool big_endian_;
  std::vector<std::byte> bytes_;
};

/// A component to be written, or, alone, a plain layout.
struct LovPart {
  std::uint64_t begin = 0, end = UINT64_MAX;
  std::uint32_t id = 1, flags = 0x10, pattern = 1;
  std::uint32_t stripe_size = 1 << 20;
  int stripe_count = -1;  ///< -1: as many as there are objects.
  std::vector<std::uint32_t> osts;
  std::string pool_name = "pool";
  std::uint32_t magic = 0x0BD30BD0;
};

inline std::vector<std::byte> lov_blob(const LovPart& part, bool big_endian = false) {
  LovBytes lov(big_endian);
  const auto count = static_cast<std::uint16_t>(
      part.stripe_count < 0 ? part.osts.size() : static_cast<std::size_t>(part.stripe_count));
  lov.u32(part.magic).u32(part.pattern).u64(1).u64(0x200000401);
  lov.u32(part.stripe_size).u16(count).u16(0xffff);
  if (part.magic != 0x0BD10BD0) {
    lov.pool(part.pool_name);
  }
  for (const std::uint32_t ost : part.osts) {
    lov.u64(100 + ost).u64(0x100010000).u32(0).u32(ost);
  }
  return lov.bytes();
}

inline std::vector<std::byte> lov_composite(const std::vector<LovPart>& parts,
                                            bool big_endian = false,
                                            std::uint32_t magic = 0x0BD60BD0, int mirrors = 1) {
  std::vector<std::vector<std::byte>> blobs;
  std::size_t size = 32 + 48 * parts.size();
  for (const LovPart& part : parts) {
    blobs.push_back(lov_blob(part, big_endian));
    size += blobs.back().size();
  }
  LovBytes lov(big_endian);
  lov.u32(magic).u32(static_cast<std::uint32_t>(size)).u32(4).u16(0);
  lov.u16(static_cast<std::uint16_t>(parts.size())).u16(static_cast<std::uint16_t>(mirrors - 1));
  lov.u8(0).u8(0).u16(0).u16(0).u64(0);
  std::size_t at = 32 + 48 * parts.size();
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const LovPart& part = parts[index];
    lov.u32(part.id).u32(part.flags).u64(part.begin).u64(part.end);
    lov.u32(static_cast<std::uint32_t>(at)).u32(static_cast<std::uint32_t>(blobs[index].size()));
    lov.u32(4).u64(0).u32(0);
    at += blobs[index].size();
  }
  for (const auto& blob : blobs) {
    lov.raw(blob);
  }
  return lov.bytes();
}

}  // namespace sprat::io
