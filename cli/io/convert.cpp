#include "cli/io/convert.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "cli/size_value.hpp"
#include "cli/tree.hpp"
#include "io/dataset/file_list.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

/// Those that are named, and those of folders that end in .parquet.
std::vector<std::string> parquet_files(const std::vector<std::string>& paths) {
  io::FoundFiles found = io::find_files(paths);
  std::erase_if(found.in_folders,
                [](const std::string& path) { return !path.ends_with(".parquet"); });
  std::vector<std::string> files = std::move(found.named);
  files.insert(files.end(), found.in_folders.begin(), found.in_folders.end());
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  if (files.empty()) {
    throw Error(ErrorCode::unavailable,
                fmt::format("{} has no file that ends in .parquet", found.folders.front()));
  }
  return files;
}

}  // namespace

Action prepare_io_convert(CLI::App& app) {
  // Shared by the parser, which fills it, and the action.
  const auto request = std::make_shared<ParquetRequest>();
  const auto size = SizeValue(false);  // 64M is 64 * 2^20
  app.add_option("FILE", request->files, "Parquet files, folders, or patterns with * and ?")
      ->required();
  app.add_option("--to", request->folder, "The folder to make")->required();
  app.add_option("--columns", request->columns, "Those that are wanted, as a,b (default: all)")
      ->delimiter(',');
  app.add_flag("--fill-nulls", request->fill_nulls, "Zeros and empty texts for what is null");
  app.add_option("--shard-bytes", request->shard_bytes, "Of a shard, about (default: 64M)")
      ->transform(size);
  return [request] {
    request->files = parquet_files(request->files);
    const MdsWritten written = convert_parquet(*request);
    fmt::print("{} has {} samples in {} shards, {}\n", request->folder, written.samples,
               written.shards, readable_bytes(written.bytes));
    return 0;
  };
}

}  // namespace sprat::cli
