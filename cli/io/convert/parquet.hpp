// Rows of Parquet files as samples of MDS, by Apache Arrow where this command was built with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/io/convert/mds_writer.hpp"

namespace sprat::cli {

struct ParquetRequest {
  std::vector<std::string> files;         ///< In the order of the samples.
  std::vector<std::string> columns = {};  ///< Of the top level; empty: all.
  bool fill_nulls = false;                ///< Else a null is an error, but within JSON.
  std::string folder;                     ///< Made; must not be there.
  std::uint64_t shard_bytes = std::uint64_t{64} << 20;
};

/// "Apache Arrow 26.0.1", or that there is none, and what to do.
std::string parquet_reader();

/// Throws Error naming file, row and column, and leaves nothing then. Without Arrow: with what
/// parquet_reader() says.
MdsWritten convert_parquet(const ParquetRequest& request);

}  // namespace sprat::cli
