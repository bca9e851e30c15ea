#include "checkpoint/contents.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"
#include "io/checked_file.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Bytes of one row; nullopt where a dtype is unknown, a row ends within a byte or is too long.
std::optional<std::uint64_t> row_bytes(const StoredTensor& tensor) {
  const auto bits = io::safetensors_bits(tensor.dtype);
  std::uint64_t total = bits.value_or(0);
  for (std::size_t dimension = 1; dimension < tensor.shape.size(); ++dimension) {
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(tensor.shape[dimension]),
                               &total)) {
      return std::nullopt;
    }
  }
  return bits && total % 8 == 0 ? std::optional(total / 8) : std::nullopt;
}

void check_tensor(const std::string& who, const StoredTensor& tensor,
                  const std::vector<StoredFile>& files) {
  for (const std::int64_t extent : tensor.shape) {
    need(extent >= 0, who, " has an extent of ", extent);
  }
  const auto bytes_a_row = row_bytes(tensor);
  need(bytes_a_row.has_value(), who, " has no whole bytes of ", tensor.dtype, " a row");
  std::uint64_t row = 0, bytes = 0;
  for (const RowBox& box : tensor.boxes) {
    need(box.first_row == row, who, " has its row ", std::min(row, box.first_row),
         box.first_row < row ? " twice" : " nowhere");
    need(box.file < files.size(), who, " lies in file ", box.file, " of ", files.size());
    const StoredFile& file = files[box.file];
    // The numbers come from a file. Each sum and product is checked, since one that wraps would
    // seem to end within the file.
    need(!__builtin_add_overflow(row, box.rows, &row) &&
             !__builtin_mul_overflow(box.rows, *bytes_a_row, &bytes) &&
             box.begin <= file.record.bytes && bytes <= file.record.bytes - box.begin,
         who, " reaches beyond the end of ", file.name);
  }
  need(row == tensor.rows() && !tensor.boxes.empty(), who, " has ", row, " of its ", tensor.rows(),
       " rows");
}

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

/// The first row of a tensor that a file holds.
std::uint64_t first_row(const std::string& path, const Json& sharding, const std::string& name) {
  if (sharding.is_null()) {
    return 0;
  }
  try {
    const auto saved = sharding.at(name).at("saved_offsets").get<std::vector<std::uint64_t>>();
    for (std::size_t dimension = 1; dimension < saved.size(); ++dimension) {
      need(saved[dimension] == 0, path, ": tensor \"", name, "\" is cut along dimension ",
           dimension, "; only whole rows can be read");
    }
    return saved.empty() ? 0 : saved[0];
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::unavailable,
                text(path, ": tensor \"", name, "\" has no saved_offsets: ", error.what()));
  }
}

/// Adds a box; the extent along rows grows with it.
void add_box(const std::string& path, std::map<std::string, StoredTensor>& tensors,
             const io::SafeTensor& part, const RowBox& box) {
  std::vector<std::int64_t> shape(part.shape.begin(), part.shape.end());
  if (!shape.empty()) {
    need(!__builtin_add_overflow(part.shape[0], box.first_row, &shape[0]), path, ": tensor \"",
         part.name, "\" begins at row ", box.first_row);
  }
  const auto [found, is_new] = tensors.try_emplace(
      part.name, StoredTensor{.name = part.name, .dtype = part.dtype, .shape = shape, .boxes = {}});
  StoredTensor& tensor = found->second;
  need(tensor.dtype == part.dtype && tensor.shape.size() == shape.size() &&
           std::equal(shape.begin() + !shape.empty(), shape.end(),
                      tensor.shape.begin() + !shape.empty()),
       path, ": tensor \"", part.name, "\" has another dtype or shape than in the files before");
  if (!shape.empty()) {
    tensor.shape[0] = std::max(tensor.shape[0], shape[0]);
  }
  tensor.boxes.push_back(box);
}

}  // namespace

std::uint64_t StoredTensor::rows() const {
  return shape.empty() ? 1 : static_cast<std::uint64_t>(shape[0]);
}

std::uint64_t StoredTensor::row_elements() const {
  std::uint64_t elements = 1;
  for (std::size_t dimension = 1; dimension < shape.size(); ++dimension) {
    elements *= static_cast<std::uint64_t>(shape[dimension]);
  }
  return elements;
}

const StoredTensor* Contents::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &StoredTensor::name);
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

void check_contents(const std::string& where, const Contents& contents) {
  const std::string* before = nullptr;
  for (const StoredTensor& tensor : contents.tensors) {
    need(before == nullptr || *before < tensor.name, where, ": tensor \"", tensor.name,
         "\" is not in the order of names");
    before = &tensor.name;
    check_tensor(where + ": tensor \"" + tensor.name + "\"", tensor, contents.files);
  }
}

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
               .first_row = first_row(path, sharding, tensor.name),
               .rows = tensor.shape.empty() ? 1 : tensor.shape[0]});
    }
    contents.folder = fs::path(path).parent_path();
    contents.files.push_back(
        {.name = fs::path(path).filename(), .record = {.bytes = file.bytes(), .blocks = {}}});
  }
  for (auto& [name, tensor] : tensors) {
    std::ranges::stable_sort(tensor.boxes, {}, &RowBox::first_row);
    contents.tensors.push_back(std::move(tensor));
  }
  check_contents(contents.folder.empty() ? "." : contents.folder, contents);
  return contents;
}

std::string stored_name(const std::string& state, const std::string& parameter) {
  return state.empty() ? parameter : "optimizer." + state + "." + parameter;
}

}  // namespace sprat::fsdp
