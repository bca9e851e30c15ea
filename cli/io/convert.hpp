// `sprat io convert FILE ... --to FOLDER`: rows of tables as records that can be read alone.
#pragma once

#include <string>

#include "cli/command.hpp"
#include "cli/io/convert/parquet.hpp"

namespace sprat::cli {

inline constexpr const char* io_convert_summary = "Make MDS shards of Parquet files";
inline constexpr const char* io_convert_lesson =
    R"(Rows of Parquet lie scattered over the pages of a row group, compressed, so none can be read alone. This writes each
row as a sample of MDS, which the loader reads in any order (format mds). Columns keep their names: texts are str,
numbers what they are, lists of numbers arrays, other lists JSON; a struct's fields are columns "image.bytes",
"image.path". FOLDER appears when all is written. It needs a sprat that was built with Apache Arrow (`sprat info`
says); docs/data.md has a way by Python.

Examples:
  sprat io convert train/*.parquet --to train-mds
  sprat io convert train/ --to text-mds --columns text        of all columns the one that is trained on
)";
/// Adds the options to `app`. The Action is called after parsing.
Action prepare_io_convert(CLI::App& app);

}  // namespace sprat::cli
