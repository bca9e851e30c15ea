// Headers of safetensors files: each is refused with an Error, or its tensors tile the data.
#include <string_view>

#include "io/formats/safetensors.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {

/// The input is a file.
bool run_safetensors(std::span<const std::byte> input) {
  try {
    const std::uint64_t bytes = io::safetensors_json_bytes("file", input, input.size());
    const std::string_view json(reinterpret_cast<const char*>(input.data()) + 8, bytes);
    const io::SafetensorsHeader header = io::parse_safetensors("file", json, input.size());
    std::uint64_t end = 0;
    for (const io::SafeTensor& tensor : header.tensors) {
      expect(tensor.begin == end && tensor.end >= end, "tensors follow each other");
      end = tensor.end;
    }
    expect(header.data_offset + end == input.size(), "the data ends with the file");
    const std::string again = io::write_safetensors_header(header.tensors, header.metadata);
    const auto parsed =
        io::parse_safetensors("file", std::string_view(again).substr(8), again.size() + end);
    expect(parsed.tensors == header.tensors && parsed.metadata == header.metadata,
           "a header comes back");
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
