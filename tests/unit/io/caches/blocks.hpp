// Files of made-up bytes, as caches see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/caches/block.hpp"
#include "tests/unit/bytes.hpp"

namespace sprat::io {

/// The bytes of a block, different for each, the same in every process.
inline std::vector<std::byte> made_up_block(const BlockKey& key,
                                            std::size_t bytes = cache_block_bytes) {
  return pattern(bytes, group_hash(key) + key.block);
}

/// Shared, as slabs of a loader are.
inline std::shared_ptr<const std::vector<std::byte>> shared_block(
    const BlockKey& key, std::size_t bytes = cache_block_bytes) {
  return std::make_shared<const std::vector<std::byte>>(made_up_block(key, bytes));
}

inline FileKey made_up_file(int number, std::uint64_t bytes = 100 * cache_block_bytes) {
  return file_key("/data/shard-" + std::to_string(number), {.bytes = bytes, .modified_ns = 7});
}

}  // namespace sprat::io
