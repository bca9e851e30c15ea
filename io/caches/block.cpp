// Hashes are XXH3's, the same on every machine and in every version.
#include "io/caches/block.hpp"

#include <xxhash.h>

#include "comm/base/hash.hpp"

namespace sprat::io {

FileKey file_key(std::string_view path, const FileStamp& stamp) {
  // Length and time go into the seed, and the hash has 128 bits: two files of a dataset that had
  // one key would be taken for each other.
  const std::uint64_t seed =
      mix_bits(stamp.bytes + golden_step) ^
      mix_bits(static_cast<std::uint64_t>(stamp.modified_ns) + 2 * golden_step);
  const XXH128_hash_t hash = XXH3_128bits_withSeed(path.data(), path.size(), seed);
  // The seed alone has 64 bits, so what it was made of is mixed in once more.
  return {.high = hash.high64 ^ mix_bits(stamp.bytes),
          .low = hash.low64 + mix_bits(static_cast<std::uint64_t>(stamp.modified_ns))};
}

std::uint64_t group_hash(const BlockKey& key) {
  const std::uint64_t group = key.block / blocks_kept_together;
  return mix_bits(key.file.high ^ mix_bits(key.file.low + golden_step * (group + 1)));
}

KeepRule::KeepRule(std::uint64_t capacity, std::uint64_t total) : all_(capacity >= total) {
  if (!all_) {
    // 2^64 * capacity / total, without 128-bit division: the quotient's first 32 bits decide more
    // finely than any dataset has blocks.
    const double share = static_cast<double>(capacity) / static_cast<double>(total);
    limit_ = static_cast<std::uint64_t>(share * 4294967296.0) << 32;
  }
}

bool KeepRule::keeps(const BlockKey& key) const {
  // Owners are chosen by the same hash, so this one is mixed once more: else a host would keep
  // another share than the rest.
  return all_ || mix_bits(group_hash(key) + golden_step) < limit_;
}

}  // namespace sprat::io
