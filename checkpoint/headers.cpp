#include "checkpoint/headers.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "io/checked_file.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// What a file says about the place of its boxes; null if it says nothing.
Json sharding_of(const std::string& path, const io::SafetensorsHeader& header) {
  const auto found = header.metadata.find("DCP_SHARDING_INFO");
  if (found == header.metadata.end()) {
    return nullptr;
  }
  const Json sharding = Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  need(sharding.is_object(), path, ": its DCP_SHARDING_INFO is no JSON object");
  return sharding;
}

/// The part of a tensor that a file holds.
Box box_in(const std::string& path, const Json& sharding, const io::SafeTensor& part) {
  Box box{.offset = std::vector<std::int64_t>(part.shape.size(), 0),
          .extent = {part.shape.begin(), part.shape.end()}};
  if (sharding.is_null()) {
    return box;
  }
  try {
    const auto saved = whole_numbers<std::uint64_t>(sharding.at(part.name).at("saved_offsets"));
    need(saved.size() == part.shape.size(), path, ": tensor \"", part.name, "\" has ",
         part.shape.size(), " dimensions and ", saved.size(), " saved_offsets");
    box.offset.assign(saved.begin(), saved.end());
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::unavailable, text(path, ": tensor \"", part.name,
                                             "\" has no saved_offsets: ", reason_of(error)));
  }
  return box;
}

/// Adds a box; the shape grows with it.
void add_box(const std::string& path, std::map<std::string, StoredTensor>& tensors,
             const io::SafeTensor& part, StoredBox stored) {
  const std::size_t dimensions = part.shape.size();
  const auto [found, is_new] =
      tensors.try_emplace(part.name, StoredTensor{.name = part.name,
                                                  .dtype = part.dtype,
                                                  .shape = std::vector<std::int64_t>(dimensions, 0),
                                                  .boxes = {}});
  StoredTensor& tensor = found->second;
  need(tensor.dtype == part.dtype && tensor.shape.size() == dimensions, path, ": tensor \"",
       part.name, "\" has another dtype or other dimensions than in the files before");
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::int64_t end = 0;
    need(!__builtin_add_overflow(stored.box.offset[d], stored.box.extent[d], &end), path,
         ": tensor \"", part.name, "\" begins at ", stored.box.offset[d]);
    tensor.shape[d] = std::max(tensor.shape[d], end);
  }
  tensor.boxes.push_back(std::move(stored));
}

}  // namespace

Contents read_safetensors(const std::vector<std::string>& paths) {
  Contents contents;
  std::map<std::string, StoredTensor> tensors;
  for (const std::string& path : paths) {
    const io::ReadFile file(path);
    std::vector<std::byte> first(std::min<std::uint64_t>(file.bytes(), 8));
    file.read(0, first);
    std::string json(io::safetensors_json_bytes(path, first, file.bytes()), '\0');
    file.read(first.size(), std::as_writable_bytes(std::span(json)));
    const io::SafetensorsHeader header = io::parse_safetensors(path, json, file.bytes());
    const Json sharding = sharding_of(path, header);
    for (const io::SafeTensor& tensor : header.tensors) {
      add_box(path, tensors, tensor,
              {.file = contents.files.size(),
               .begin = header.data_offset + tensor.begin,
               .box = box_in(path, sharding, tensor)});
    }
    contents.folder = fs::path(path).parent_path();
    contents.files.push_back(
        {.name = fs::path(path).filename(), .record = {.bytes = file.bytes(), .blocks = {}}});
  }
  for (auto& [name, tensor] : tensors) {
    sort_boxes(tensor);
    contents.tensors.push_back(std::move(tensor));
  }
  check_contents(contents.folder.empty() ? "." : contents.folder, contents);
  return contents;
}

}  // namespace sprat::fsdp
