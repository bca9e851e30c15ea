// The header of a safetensors file: which tensors lie where. Bytes in, values out.
//
// A file is u64 N (little-endian), N bytes of JSON that may end in spaces, then the data; nothing
// else. Source: the format section of github.com/huggingface/safetensors, README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::io {

/// Bytes before the JSON: its length.
inline constexpr std::size_t safetensors_length_bytes = 8;
/// The format allows no longer JSON.
inline constexpr std::uint64_t safetensors_longest_header = 100'000'000;

struct SafeTensor {
  std::string name;
  std::string dtype;  ///< "F32" and so on.
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< Bytes within the data.
  bool operator==(const SafeTensor&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;              ///< In the order of their data.
  std::map<std::string, std::string> metadata;  ///< `__metadata__`.
  std::uint64_t data_offset = 0;                ///< Where the data begins in the file.
};

/// Bits of one element of a dtype of the format; nullopt for a name that is none.
std::optional<std::uint64_t> safetensors_bits(std::string_view dtype);

/// The length of the JSON, from the file's first bytes (fewer than 8 are refused).
/// Throws Error{unavailable} naming `file` if the format does not allow it in a file of
/// `file_bytes`.
std::uint64_t safetensors_json_bytes(const std::string& file, std::span<const std::byte> first,
                                     std::uint64_t file_bytes);

/// Reads and checks the JSON of a file of `file_bytes`. Throws Error{unavailable} naming `file` and
/// the tensor: unknown dtypes, keys given twice, ranges that overlap, leave a hole, differ from
/// shape and dtype, or do not end with the file.
SafetensorsHeader parse_safetensors(const std::string& file, std::string_view json,
                                    std::uint64_t file_bytes);

/// The bytes before the data: length and JSON, padded so that the data begins at a multiple of 64.
/// The ranges of `tensors` follow each other from 0.
std::string write_safetensors_header(const std::vector<SafeTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata);

}  // namespace sprat::io
