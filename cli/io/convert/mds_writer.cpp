// A shard is u32 n, u32 offsets[n + 1] from its begin, JSON with the columns, then the samples: u32
// sizes of the columns that have no fixed one, then all columns' bytes. index.json lists shards.
// Source: streaming/base/format/mds/writer.py.
#include "cli/io/convert/mds_writer.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/base/check.hpp"
#include "io/durable.hpp"

namespace sprat::cli {
namespace {

using MdsJson = nlohmann::json;  // whose keys are sorted, as MosaicML's writer has them

const io::StepHook no_hook = [](std::string_view, const std::string&) {};

void append_number(std::string& to, std::uint64_t number) {
  const auto narrow = static_cast<std::uint32_t>(number);
  to.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
}

MdsJson columns_json(const std::vector<MdsColumn>& columns, std::uint64_t shard_bytes) {
  MdsJson json = {{"column_encodings", MdsJson::array()},
                  {"column_names", MdsJson::array()},
                  {"column_sizes", MdsJson::array()},
                  {"compression", nullptr},
                  {"format", "mds"},
                  {"hashes", MdsJson::array()},
                  {"size_limit", shard_bytes},
                  {"version", 2}};
  for (const MdsColumn& column : columns) {
    json["column_names"].push_back(column.name);
    json["column_encodings"].push_back(column.encoding);
    json["column_sizes"].push_back(column.bytes > 0 ? MdsJson(column.bytes) : MdsJson());
  }
  return json;
}

}  // namespace

MdsWriter::MdsWriter(std::string folder, std::vector<MdsColumn> columns, std::uint64_t shard_bytes)
    : folder_(std::filesystem::absolute(folder).lexically_normal().string()),
      unfinished_(folder_ + "-unfinished"),
      columns_(std::move(columns)),
      shard_bytes_(shard_bytes),
      config_(columns_json(columns_, shard_bytes_).dump()) {
  std::error_code none;
  for (const std::string& path : {folder_, unfinished_}) {
    need(!std::filesystem::exists(path, none), path, " is there already: name a folder that is ",
         "not, or remove it");
  }
  io::make_folder(unfinished_, no_hook);
}

MdsWriter::~MdsWriter() {
  // An error is under way, and says more than what cannot be removed would.
  if (!whole_) {
    io::remove_all(unfinished_, no_hook);
  }
}

void MdsWriter::add(std::span<const std::string> values) {
  require(values.size() == columns_.size(), "a sample has ", values.size(), " values, for ",
          columns_.size(), " columns");
  std::string sizes, bytes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    require(columns_[i].bytes == 0 || values[i].size() == columns_[i].bytes, "a value of ",
            columns_[i].name, " has ", values[i].size(), " bytes; all have ", columns_[i].bytes);
    if (columns_[i].bytes == 0) {
      append_number(sizes, values[i].size());
    }
    bytes += values[i];
  }
  // As it would be with the sample: a number for each, one more for the end, and how many.
  const auto shard_bytes = [&](std::uint64_t more, std::uint64_t samples) {
    return 4 * (samples + 2) + config_.size() + samples_.size() + more;
  };
  const std::uint64_t more = sizes.size() + bytes.size();
  if (!sizes_.empty() && shard_bytes(more, sizes_.size() + 1) > shard_bytes_) {
    end_shard();
  }
  need(shard_bytes(more, sizes_.size() + 1) <= std::numeric_limits<std::uint32_t>::max(), "sample ",
       written_.samples, " of ", folder_, " has ", more,
       " bytes, and places in a shard of MDS are numbers of 32 bits: leave out a column");
  sizes_.push_back(static_cast<std::uint32_t>(more));
  samples_ += sizes;
  samples_ += bytes;
  ++written_.samples;
}

void MdsWriter::end_shard() {
  // Offsets are known with the last sample, so a shard is written as a whole.
  std::string head;
  append_number(head, sizes_.size());
  std::uint64_t offset = 4 * (sizes_.size() + 2) + config_.size();
  append_number(head, offset);
  for (const std::uint32_t size : sizes_) {
    append_number(head, offset += size);
  }
  head += config_;
  const std::string file_name = fmt::format("shard.{:05}.mds", written_.shards);
  io::DurableFile file(unfinished_ + "/" + file_name, no_hook);
  file.write(std::as_bytes(std::span(head)));
  file.write(std::as_bytes(std::span(samples_)));
  file.finish();
  MdsJson entry = columns_json(columns_, shard_bytes_);
  entry["samples"] = sizes_.size();
  entry["raw_data"] = {{"basename", file_name}, {"bytes", offset}, {"hashes", MdsJson::object()}};
  entry["zip_data"] = nullptr;
  entries_.push_back(entry.dump());
  written_.bytes += offset;
  ++written_.shards;
  samples_.clear();
  sizes_.clear();
}

MdsWritten MdsWriter::finish() {
  if (!sizes_.empty()) {
    end_shard();
  }
  // The index last, then the folder's name: readers see all of it or nothing.
  io::write_file(unfinished_ + "/index.json",
                 fmt::format("{{\"shards\": [{}], \"version\": 2}}\n", fmt::join(entries_, ", ")),
                 no_hook);
  io::sync_folder(unfinished_, no_hook);
  io::rename_over(unfinished_, folder_, no_hook);
  whole_ = true;
  return written_;
}

}  // namespace sprat::cli
