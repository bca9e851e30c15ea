#include "mp/partition/partition_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "comm/base/strict_json.hpp"

namespace sprat::mp {
namespace {

using Json = nlohmann::json;
constexpr int partition_file_version = 1;
constexpr const char* plan_again = "plan again with `sprat partition --write`";

double all_parameter_bytes(const ModelPiece& piece) {
  double bytes = piece.parameter_bytes;
  for (const SharedParameter& shared : piece.shared) {
    bytes += shared.bytes;
  }
  return bytes;
}

std::vector<PartitionFile::Entry> entries_of(std::span<const ModelPiece* const> pieces) {
  std::vector<PartitionFile::Entry> entries;
  for (const ModelPiece* piece : pieces) {
    entries.push_back(
        {.name = piece->name, .parameter_bytes = all_parameter_bytes(*piece), .partition = 0});
  }
  return entries;
}

/// Names are quoted, so that none can be mistaken for two.
std::string fingerprint_of(const std::vector<PartitionFile::Entry>& entries) {
  std::string all;
  for (const PartitionFile::Entry& entry : entries) {
    all += Json(entry.name).dump() + Json(entry.parameter_bytes).dump();
  }
  return fmt::format("{:016x}", fnv1a(all));
}

PartitionFile partition_file_from(const Json& json) {
  require(json.is_object() && json.contains("sprat_partition"),
          "it is no partition file: \"sprat_partition\" is missing");
  const int version = whole_number<int>(json.at("sprat_partition"));
  require(version == partition_file_version, "its version is ", version,
          ", and this sprat reads version ", partition_file_version, "; ", plan_again);
  PartitionFile file{.partitions = whole_number<int>(json.at("partitions")), .pieces = {}};
  require(file.partitions >= 1, "it has ", file.partitions, " partitions");
  for (const Json& piece : json.at("pieces")) {
    PartitionFile::Entry entry{.name = piece.at("name").get<std::string>(),
                               .parameter_bytes = piece.at("parameter_bytes").get<double>(),
                               .partition = whole_number<int>(piece.at("partition"))};
    require(entry.partition >= 0 && entry.partition < file.partitions, "it places \"", entry.name,
            "\" on partition ", entry.partition, " of ", file.partitions);
    file.pieces.push_back(std::move(entry));
  }
  // Whoever edits by hand moves pieces, and gives no others.
  const std::string named = json.at("model").get<std::string>();
  const std::string found = fingerprint_of(file.pieces);
  require(named == found, "it names the model ", named, ", but its pieces are those of ", found,
          "; ", plan_again);
  return file;
}

}  // namespace

std::string model_fingerprint(std::span<const ModelPiece* const> pieces) {
  return fingerprint_of(entries_of(pieces));
}

std::string write_partition_file(std::span<const ModelPiece* const> pieces,
                                 std::span<const int> partition_of, int partitions) {
  // One piece a line, so that a person can move one and see what moved between two files.
  std::string out =
      fmt::format("{{\"sprat_partition\":{},\"partitions\":{},\"model\":\"{}\",\n\"pieces\":[",
                  partition_file_version, partitions, model_fingerprint(pieces));
  const char* separator = "\n";
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    out += fmt::format("{}{{\"partition\":{},\"name\":{},\"parameter_bytes\":{}}}", separator,
                       partition_of[index], Json(pieces[index]->name).dump(),
                       Json(all_parameter_bytes(*pieces[index])).dump());
    separator = ",\n";
  }
  return out + "\n]}\n";
}

PartitionFile parse_partition_file(const std::string& name, std::string_view text) {
  try {
    JsonKeys keys;
    const Json json =
        Json::parse(text.begin(), text.end(),
                    [&keys](int depth, Json::parse_event_t event, const Json& parsed) {
                      constexpr int deepest_list = 8;
                      require(depth < deepest_list, "it is nested too deeply");
                      const auto repeated = keys.repeated(event, parsed);
                      require(!repeated, "it gives the key \"", repeated.value_or(""), "\" twice");
                      return true;
                    });
    return partition_file_from(json);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::invalid_argument, sprat::text(name, ": ", reason_of(error)));
  } catch (const Error& error) {
    throw Error(error.code(), sprat::text(name, ": ", error.what()));
  }
}

std::vector<int> partition_from(const std::string& name, const PartitionFile& file,
                                std::span<const ModelPiece* const> pieces, int partitions) {
  const std::vector<PartitionFile::Entry> ours = entries_of(pieces);
  const auto& theirs = file.pieces;
  for (std::size_t index = 0; index < std::min(ours.size(), theirs.size()); ++index) {
    const PartitionFile::Entry &mine = ours[index], &other = theirs[index];
    require(mine.name == other.name && mine.parameter_bytes == other.parameter_bytes, name,
            " is of another model: its piece ", index, " is \"", other.name, "\" with ",
            other.parameter_bytes, " bytes of parameters, here it is \"", mine.name, "\" with ",
            mine.parameter_bytes, "; ", plan_again);
  }
  require(ours.size() == theirs.size(), name, " is of another model: it has ", theirs.size(),
          " pieces, this one ", ours.size(), "; ", plan_again);
  require(file.partitions == partitions, name, " has ", file.partitions, " partitions, not ",
          partitions, "; ", plan_again, ", or ask for ", file.partitions);
  std::vector<int> partition_of;
  for (const PartitionFile::Entry& entry : theirs) {
    partition_of.push_back(entry.partition);
  }
  return partition_of;
}

std::vector<int> manual_partition(std::span<const ModelPiece* const> pieces,
                                  const std::map<std::string, int>& pins, int default_partition,
                                  int partitions) {
  require(default_partition >= 0 && default_partition < partitions, "default_partition is ",
          default_partition, ", not from 0 to ", partitions - 1);
  for (const auto& [name, partition] : pins) {
    require(partition >= 0 && partition < partitions, "\"", name, "\" is pinned to partition ",
            partition, ", not from 0 to ", partitions - 1);
  }
  std::set<std::string> used;
  std::vector<int> partition_of;
  for (const ModelPiece* piece : pieces) {
    int where = default_partition;
    // From the whole name to its first word, so that the longest pin is found first.
    for (std::string name = piece->name; !name.empty();) {
      if (const auto pin = pins.find(name); pin != pins.end()) {
        where = pin->second;
        used.insert(name);
        break;
      }
      const std::size_t dot = name.rfind('.');
      name.resize(dot == std::string::npos ? 0 : dot);
    }
    partition_of.push_back(where);
  }
  for (const auto& [name, partition] : pins) {
    // A pin that longer ones override everywhere is no mistake; one of no piece is.
    const bool known =
        used.contains(name) || std::ranges::any_of(pieces, [&name = name](const ModelPiece* piece) {
          return piece->name == name || piece->name.starts_with(name + ".");
        });
    require(known, "no piece is named \"", name, "\" or \"", name, "....\"; the first is \"",
            pieces.empty() ? "" : pieces.front()->name, "\"");
  }
  return partition_of;
}

}  // namespace sprat::mp
