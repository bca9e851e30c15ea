// A block is narrower than its elements, so those at the array's end lie at or behind the elements
// that they stand for. Encoding goes from the last block to the first and decoding from the first
// to the last: neither then overwrites what it still has to read.
#include "fsdp/encoded_array.hpp"

#include <array>
#include <cstring>

#include "fsdp/rounding.hpp"
#include "fsdp/unit_home.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {
namespace {

constexpr std::size_t block_bytes = encoded_bytes(wire_block_elements);
using Block = std::array<float, wire_block_elements>;
using Codes = std::array<std::byte, block_bytes>;

}  // namespace

Elements EncodedArray::blocks(std::size_t first, std::size_t count) const {
  auto* const end = static_cast<std::byte*>(values_.data) + values_.bytes();
  return {.data = end - encoded_bytes(values_.count) + encoded_bytes(first),
          .count = encoded_bytes(count),
          .dtype = DType::u8};
}

void EncodedArray::encode(const ConstElements& from, std::size_t first) const {
  Block block;
  Codes codes;
  for (std::size_t left = from.count; left > 0; left -= wire_block_elements) {
    const std::size_t offset = left - wire_block_elements;
    const auto* const source =
        static_cast<const std::byte*>(from.data) + offset * size_of(from.dtype);
    widen(from.dtype, source, block);
    sprat::encode(wire_, block, codes);
    std::memcpy(blocks(first + offset, wire_block_elements).data, codes.data(), codes.size());
  }
}

void EncodedArray::decode() const {
  Block block;
  Codes codes;
  for (std::size_t offset = 0; offset < values_.count; offset += wire_block_elements) {
    std::memcpy(codes.data(), blocks(offset, wire_block_elements).data, codes.size());
    sprat::decode(wire_, codes, block);
    narrow(values_.dtype, block,
           part_of(values_.data, offset, wire_block_elements, values_.dtype).data);
  }
}

void pass_through(DType wire, const Elements& values) {
  const EncodedArray array(values, wire);
  array.encode(values, 0);
  array.decode();
}

}  // namespace sprat::fsdp
