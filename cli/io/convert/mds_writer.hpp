// Writes a folder of MosaicML's MDS shards: the format in which rows of tables can be read alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::cli {

struct MdsColumn {
  std::string name;
  std::string encoding;     ///< As MDS names it: "str", "bytes", "int64", "ndarray:int32", "json".
  std::uint32_t bytes = 0;  ///< Of each value, or 0 where they differ.

  friend bool operator==(const MdsColumn&, const MdsColumn&) = default;
};

struct MdsWritten {
  std::uint64_t samples = 0, shards = 0, bytes = 0;
};

/// `folder` appears with finish(), whole; without it nothing is left. One thread at a time.
class MdsWriter final {
 public:
  /// A shard is ended before a sample that would make it longer than `shard_bytes`. Throws
  /// Error{unavailable} if `folder` is there, or cannot be made.
  MdsWriter(std::string folder, std::vector<MdsColumn> columns, std::uint64_t shard_bytes);
  ~MdsWriter();
  MdsWriter(const MdsWriter&) = delete;
  MdsWriter& operator=(const MdsWriter&) = delete;

  /// A value a column, in their order. Throws Error naming a sample that no shard can hold.
  void add(std::span<const std::string> values);
  MdsWritten finish();

 private:
  void end_shard();

  const std::string folder_, unfinished_;
  const std::vector<MdsColumn> columns_;
  const std::uint64_t shard_bytes_;
  const std::string config_;
  std::string samples_;               // of the shard that is being made
  std::vector<std::uint32_t> sizes_;  // of each of them
  std::vector<std::string> entries_;  // of index.json, as JSON
  MdsWritten written_;
  bool whole_ = false;
};

}  // namespace sprat::cli
