// What takes the place of parquet.cpp where there is no Apache Arrow.
#include "cli/io/convert/parquet.hpp"
#include "comm/base/check.hpp"

namespace sprat::cli {

std::string parquet_reader() {
  return "none: built without Apache Arrow (-D SPRAT_PARQUET=ON builds with it)";
}

MdsWritten convert_parquet(const ParquetRequest& request) {
  need(false, "this sprat cannot read ", request.files.empty() ? "Parquet" : request.files.front(),
       ": it was built without Apache Arrow. Build it with -D SPRAT_PARQUET=ON, or write JSON ",
       "lines by pyarrow: docs/data.md has the five lines");
  return {};
}

}  // namespace sprat::cli
